"""The composition root: ports meet adapters here and nowhere else.

Adapters are imported where they are built. A client process then never loads Dramatiq's consumers, APScheduler
or the runtime, and the command line starts in a fraction of a second.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wakeful.bootstrap.settings import Settings
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.domain.runs import Submission, Submitted
from wakeful.domain.states import PriorityClass

if TYPE_CHECKING:
    from wakeful.actors.suspect_forks import ForkedServer
    from wakeful.actors.wakeups import BrokerWakeups
    from wakeful.app import App
    from wakeful.bootstrap.scheduler import Scheduler
    from wakeful.bootstrap.worker import Worker
    from wakeful.persistence.store import PostgresStore

__all__ = [
    "ClientParts",
    "load_app",
    "open_client",
    "open_store",
    "open_wakeups",
    "scheduler",
    "store",
    "suspect_forks",
    "wakeups",
    "worker",
]

WAKEUPS_CLOSE_SECONDS = 1.0


def store(settings: Settings) -> "PostgresStore":
    """The store, not opened yet. Raises ConfigurationError without an address."""
    from wakeful.persistence.artifact_files import LocalArtifactFiles
    from wakeful.persistence.store import Addresses, PostgresStore

    worker_url = settings.worker_database_url
    return PostgresStore(
        Addresses(
            app=settings.required_database_url(),
            worker=worker_url.get_secret_value() if worker_url else None,
            direct=settings.direct_url(),
        ),
        role_prefix=settings.role_prefix,
        pool_size=settings.app_pool_size,
        worker_pool_size=settings.worker_pool_size,
        prepared_statements=settings.prepared_statements,
        artifact_bytes=LocalArtifactFiles(settings.artifacts_directory),
    )


async def open_store(settings: Settings) -> "PostgresStore":
    """An open store; the caller closes it. Raises Unavailable, ConfigurationError, and SchemaError when the
    database is not at the revision this code expects."""
    opened = store(settings)
    try:
        await opened.open()
    except BaseException:
        await opened.close()
        raise
    return opened


def wakeups(settings: Settings) -> "BrokerWakeups | NoWakeups":
    """What sends hints: by the broker, or nowhere when none is configured. Nothing is connected yet."""
    if settings.broker_url is None:
        return NoWakeups()
    from wakeful.actors.broker import make_broker
    from wakeful.actors.wakeups import BrokerWakeups

    return BrokerWakeups(make_broker(settings.broker_url.get_secret_value()))


@dataclass(frozen=True, slots=True)
class ClientParts:
    """What a client works on."""

    store: "PostgresStore"
    wakeups: Wakeups

    async def submit_in(self, connection: Any, submission: Submission) -> Submitted:
        """Submit inside the caller's transaction."""
        from wakeful.persistence.caller_transaction import submit_in

        return await submit_in(connection, submission)


@asynccontextmanager
async def open_wakeups(settings: Settings) -> AsyncIterator[Wakeups]:
    """Wakeups for as long as the block runs; what still waits to be sent is given a moment at the end."""
    hints = wakeups(settings)
    try:
        yield hints
    finally:
        if not isinstance(hints, NoWakeups):
            # It joins a thread, which a dead broker may keep for a moment.
            await asyncio.to_thread(hints.close, WAKEUPS_CLOSE_SECONDS)


@asynccontextmanager
async def open_client(settings: Settings) -> AsyncIterator[ClientParts]:
    """A client's parts for as long as the block runs. Raises as `open_store` does."""
    opened = await open_store(settings)
    try:
        async with open_wakeups(settings) as hints:
            yield ClientParts(opened, hints)
    finally:
        await opened.close()


def suspect_forks() -> "ForkedServer | None":
    """Fork the server of suspects' processes off this one, with a worker's code imported and no team's. None where
    forking is not safe: one is started when it is needed then. Call it before anything starts a thread."""
    from wakeful.actors.suspect_forks import fork_server
    from wakeful.bootstrap import worker as _imported  # noqa: F401 - what every suspect needs

    return fork_server() if sys.platform == "linux" and threading.active_count() == 1 else None


def load_app(target: str) -> "App":
    """The App that `module:name` names. Raises ConfigurationError."""
    from wakeful.bootstrap import apps

    return apps.load_app(target)


def worker(
    settings: Settings,
    app: "App",
    *,
    slots: int | None = None,
    classes: Sequence[PriorityClass] = tuple(PriorityClass),
    floors: Mapping[PriorityClass, int] | None = None,
    consume: bool = True,
    forked: "ForkedServer | None" = None,
) -> "Worker":
    """A worker that serves the app's agents, not started. `slots` runs at once (the setting when None), of
    `classes` only, `floors` of them reserved per class. Without `consume` it reads no broker: call its `hint`."""
    from wakeful.bootstrap.worker import Worker

    return Worker(
        settings,
        app,
        slots=slots or settings.slots,
        classes=classes,
        floors=floors or {},
        consume=consume,
        forked=forked,
    )


def scheduler(settings: Settings) -> "Scheduler":
    """The sweeps and polls of one scheduler process, not started."""
    from wakeful.bootstrap.scheduler import Scheduler

    return Scheduler(settings)

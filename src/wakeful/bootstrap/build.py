"""The composition root: ports meet adapters here and nowhere else.

Imported where they are built, as in `resources`.
"""

import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wakeful.bootstrap.resources import open_store, open_wakeups
from wakeful.bootstrap.settings import Settings
from wakeful.domain.ports.wakeups import Wakeups
from wakeful.domain.runs import Submission, Submitted
from wakeful.domain.states import PriorityClass

if TYPE_CHECKING:
    from wakeful.actors.suspect_forks import ForkedServer
    from wakeful.app import App
    from wakeful.bootstrap.scheduler import Scheduler
    from wakeful.bootstrap.worker import Worker
    from wakeful.persistence.store import PostgresStore

__all__ = [
    "ClientParts",
    "load_app",
    "open_client",
    "scheduler",
    "suspect_forks",
    "worker",
]


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

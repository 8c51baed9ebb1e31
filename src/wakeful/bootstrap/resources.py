"""What every process opens: the store, and the way hints are sent.

Adapters are imported where they are built. A client process then never loads Dramatiq's consumers, APScheduler
or the runtime, and the command line starts in a fraction of a second.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from wakeful.bootstrap.settings import Settings
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups

if TYPE_CHECKING:
    from wakeful.actors.wakeups import BrokerWakeups
    from wakeful.persistence.store import PostgresStore

__all__ = ["open_store", "open_wakeups", "store", "wakeups"]

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

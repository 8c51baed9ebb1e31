"""PostgreSQL behind every port: what a composition root opens."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from wakeful.domain.errors import ConfigurationError, WakefulError
from wakeful.domain.ports.artifacts import ArtifactBytes, Artifacts
from wakeful.domain.ports.checkpoints import Checkpoints
from wakeful.domain.ports.event_hints import EventHints, NoEventHints
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.ports.history import History
from wakeful.domain.ports.leases import LeaseKeeper
from wakeful.domain.ports.presence import PresenceReader
from wakeful.domain.ports.projections import Projections
from wakeful.domain.ports.run_control import RunControl
from wakeful.domain.ports.run_queue import RunQueue
from wakeful.domain.ports.sessions import RunReader, Sessions
from wakeful.domain.ports.sweeps import ChildSweeps, Housekeeping, RunSweeps
from wakeful.persistence.artifact_files import LocalArtifactFiles
from wakeful.persistence.artifact_orphans import ArtifactOrphans
from wakeful.persistence.artifacts import PostgresArtifacts
from wakeful.persistence.checkpoints import PostgresCheckpoints
from wakeful.persistence.child_sweeps import PostgresChildSweeps
from wakeful.persistence.connecting import STATEMENT_TIMEOUT, ConnectionSettings, connector
from wakeful.persistence.connections import HotPool
from wakeful.persistence.control import PostgresRunControl
from wakeful.persistence.engine import make_engine
from wakeful.persistence.event_hints import PostgresEventHints
from wakeful.persistence.event_log import PostgresEventLog
from wakeful.persistence.history import PostgresHistory
from wakeful.persistence.housekeeping import PostgresHousekeeping
from wakeful.persistence.installation import Installation, find_installation
from wakeful.persistence.lease_keeper import PostgresLeaseKeeper
from wakeful.persistence.presence import PostgresPresence
from wakeful.persistence.projections import PostgresProjections
from wakeful.persistence.readers import PostgresRunReader
from wakeful.persistence.revision import check_revision
from wakeful.persistence.roles import Role
from wakeful.persistence.run_queue import PostgresRunQueue
from wakeful.persistence.sessions import PostgresSessions
from wakeful.persistence.sweeps import PostgresRunSweeps
from wakeful.persistence.unit_errors import translated
from wakeful.persistence.unit_of_work import AcrossTenants, Units

__all__ = ["Addresses", "PostgresStore"]

POOL_SIZE = 8
WORKER_POOL_SIZE = 3


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where PostgreSQL is. `worker` and `direct` are `app` when unset.

    `worker` is for poolers, which need an address and a login per role; `direct` must reach PostgreSQL itself.
    """

    app: str
    worker: str | None = None
    direct: str | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an open store holds, to be closed in this order."""

    hints: EventHints
    app: HotPool
    worker: HotPool
    app_engine: AsyncEngine
    worker_engine: AsyncEngine
    heartbeat: ConnectionSettings


class PostgresStore:
    """Every port on one database, for one event loop. Open it before anything else, and close it on the same loop.

    `pool_size` bounds the connections that append, submit and load; `worker_pool_size` those that claim. As many
    again may be opened for units of work (people's actions, sweeps). All are made when they are first needed.
    The ports are there once the store is open; before, asking for one raises ConfigurationError.
    """

    log: EventLog
    queue: RunQueue
    control: RunControl
    runs: RunReader
    sessions: Sessions
    checkpoints: Checkpoints
    artifacts: Artifacts
    run_sweeps: RunSweeps
    child_sweeps: ChildSweeps
    housekeeping: Housekeeping
    projections: Projections
    history: History
    event_hints: EventHints

    def __init__(
        self,
        addresses: Addresses,
        *,
        role_prefix: str | None = None,
        pool_size: int = POOL_SIZE,
        worker_pool_size: int = WORKER_POOL_SIZE,
        prepared_statements: bool = True,
        artifact_bytes: ArtifactBytes | None = None,
        application_name: str = "wakeful",
        event_hints: bool = True,
        statement_timeout: timedelta = STATEMENT_TIMEOUT,
    ) -> None:
        """Nothing is connected. `role_prefix` None takes what `wakeful db upgrade` recorded, or the default.

        A statement is ended by the server after `statement_timeout`; a server that then says nothing is given up soon
        after, and what was under way is unknown.
        """
        self._addresses, self._role_prefix = addresses, role_prefix
        self._sizes = (pool_size, worker_pool_size)
        self._prepared_statements = prepared_statements
        self._artifact_bytes = artifact_bytes
        self._application_name, self._event_hints = application_name, event_hints
        self._statement_timeout = statement_timeout
        self._parts: _Parts | None = None

    async def open(self) -> None:
        """Connect as both roles and check the schema's revision. Opening twice changes nothing.

        Raises Unavailable, ConfigurationError (address, role or server cannot be used), and SchemaError naming both
        revisions and what to run. Nothing is left open then.
        """
        if self._parts is not None:
            return
        found = await find_installation(self._addresses.app, self._role_prefix)
        self._parts = parts = self._make(found)
        try:
            await _check_schema(parts.app_engine)
            await parts.app.open()
            await parts.worker.open()
        except BaseException:
            await self.close()
            raise
        self._build(parts, scoped=found.single_role)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back. Closing twice changes nothing."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.hints.close()
            await parts.app.close()
            await parts.worker.close()
            await parts.app_engine.dispose()
            await parts.worker_engine.dispose()

    @property
    def in_use(self) -> int:
        """Connections of the hot paths that are taken and not given back."""
        return 0 if self._parts is None else self._parts.app.in_use + self._parts.worker.in_use

    def lease_keeper(self) -> LeaseKeeper:
        """A keeper with a connection of its own on the direct address, made at its first heartbeat."""
        if self._parts is None:
            raise _not_open()
        return PostgresLeaseKeeper(self._parts.heartbeat)

    def presence(self) -> PresenceReader:
        """A reader of workers' marks with a connection of its own on the direct address, made at its first look."""
        if self._parts is None:
            raise _not_open()
        return PostgresPresence(connector(self._parts.heartbeat))

    def __getattr__(self, name: str) -> Any:
        if name in PostgresStore.__annotations__:
            raise _not_open()
        raise AttributeError(f"PostgresStore has no attribute {name!r}")

    def _make(self, found: Installation) -> _Parts:
        app = self._settings(self._addresses.app, Role.APP, found)
        worker = self._settings(self._addresses.worker or self._addresses.app, Role.WORKER, found)
        direct = self._addresses.direct or self._addresses.worker or self._addresses.app
        pool_size, worker_pool_size = self._sizes
        speaking = self._settings(self._addresses.direct or self._addresses.app, Role.APP, found)
        return _Parts(
            hints=PostgresEventHints(connector(speaking)) if self._event_hints else NoEventHints(),
            app=HotPool(connector(app), size=pool_size),
            worker=HotPool(connector(worker), size=worker_pool_size),
            app_engine=make_engine(app, pool_size=pool_size),
            worker_engine=make_engine(worker, pool_size=worker_pool_size),
            heartbeat=self._settings(direct, Role.WORKER, found, scoped=found.single_role),
        )

    def _settings(self, dsn: str, role: Role, found: Installation, *, scoped: bool = False) -> ConnectionSettings:
        return ConnectionSettings(
            dsn,
            role,
            found.role_prefix,
            prepared_statements=self._prepared_statements,
            application_name=self._application_name,
            scoped=scoped,
            statement_timeout=self._statement_timeout,
        )

    def _build(self, parts: _Parts, *, scoped: bool) -> None:
        units, across = Units(parts.app_engine), AcrossTenants(parts.worker_engine)
        self.event_hints = parts.hints
        self.log = PostgresEventLog(parts.app, parts.hints)
        self.queue = PostgresRunQueue(parts.app, parts.worker, scoped=scoped)
        self.checkpoints = PostgresCheckpoints(parts.app)
        self.control = PostgresRunControl(units)
        self.runs = PostgresRunReader(units)
        self.sessions = PostgresSessions(units)
        self.artifacts = PostgresArtifacts(units, self._artifact_bytes or _NoBytes())
        self.projections = PostgresProjections(parts.app, across)
        self.history = PostgresHistory(parts.app)
        self.run_sweeps = PostgresRunSweeps(units, across)
        self.child_sweeps = PostgresChildSweeps(units, across)
        files = self._artifact_bytes
        orphans = ArtifactOrphans(units, files) if isinstance(files, LocalArtifactFiles) else None
        self.housekeeping = PostgresHousekeeping(units, across, orphans)


class _NoBytes:
    """Stands for the byte store that nobody gave."""

    async def put(self, key: str, data: bytes) -> None:
        raise _no_bytes()

    async def get(self, key: str) -> bytes:
        raise _no_bytes()

    async def delete(self, key: str) -> None:
        raise _no_bytes()


def _no_bytes() -> WakefulError:
    return ConfigurationError("this store keeps no artifacts: give PostgresStore a byte store (artifact_bytes)")


def _not_open() -> WakefulError:
    return ConfigurationError("this store is not open: `await store.open()` first")


async def _check_schema(engine: AsyncEngine) -> None:
    with translated():
        async with engine.connect() as connection:
            await connection.run_sync(check_revision)

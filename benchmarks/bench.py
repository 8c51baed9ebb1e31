"""What every figure shares: one server, databases on it, rounds, and results that two figures need."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from benchmarks.progress import Progress
from wakeful.bootstrap.children import Child
from wakeful.bootstrap.settings import Settings, given_settings
from wakeful.domain.scopes import Scope
from wakeful.embedded import EmbeddedPostgres, EmbeddedValkey
from wakeful.persistence.roles import Role, default_prefix, role_name
from wakeful.persistence.schema import upgrade
from wakeful.persistence.store import Addresses, PostgresStore

__all__ = ["ROOT", "SCOPE", "Bench", "Database"]

ROOT = Path(__file__).resolve().parent.parent
SCOPE = Scope(UUID("00000000-0000-7000-8000-000000000001"), UUID("00000000-0000-7000-8000-000000000002"))


@dataclass(frozen=True, slots=True)
class Database:
    """A migrated database of the server."""

    name: str
    dsn: str

    @property
    def app_role(self) -> str:
        return role_name(default_prefix(self.name), Role.APP)

    def settings(self, **given: Any) -> Settings:
        return given_settings(database_url=self.dsn, **given)

    @contextlib.asynccontextmanager
    async def store(
        self, *, connections: int = 8, claimers: int = 3, event_hints: bool = True
    ) -> AsyncIterator[PostgresStore]:
        """A store as a worker has it, for as long as the block runs."""
        store = PostgresStore(
            Addresses(app=self.dsn), pool_size=connections, worker_pool_size=claimers, event_hints=event_hints
        )
        try:
            await store.open()
            yield store
        finally:
            await store.close()

    @contextlib.contextmanager
    def administrator(self) -> "Iterator[psycopg.Connection[tuple[Any, ...]]]":
        """A superuser's connection in autocommit that works on the benchmark's tenant and skips foreign keys' checks:
        for loading."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute("SELECT set_config('wakeful.tenant', %s, false)", [str(SCOPE.tenant_id)])
            yield connection


class Bench:
    """Use as a context manager. The server has default settings: fsync, synchronous commits."""

    def __init__(self, *, quick: bool, progress: Progress) -> None:
        self.quick = quick
        self.progress = progress
        self.postgres = EmbeddedPostgres()
        self._ending = contextlib.ExitStack()
        self._databases: dict[str, Database] = {}
        self._valkey: EmbeddedValkey | None = None
        self._known: dict[str, Any] = {}

    def __enter__(self) -> "Bench":
        self.folder = Path(self._ending.enter_context(tempfile.TemporaryDirectory(prefix="wakeful-bench-")))
        self._ending.enter_context(self.postgres)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 7

    @property
    def seconds(self) -> int:
        """How long one side of a round takes."""
        return 1 if self.quick else 2

    def database(self, name: str) -> Database:
        """The database of this name, made and migrated when it is new."""
        if name not in self._databases:
            with psycopg.connect(self.postgres.dsn(), autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{name}"')
            made = Database(name, self.postgres.dsn(name))
            upgrade(made.dsn)
            with made.administrator() as administrator:
                administrator.execute("INSERT INTO wakeful.tenants (id, name) VALUES (%s, 'bench')", [SCOPE.tenant_id])
            self._databases[name] = made
        return self._databases[name]

    @property
    def broker_url(self) -> str:
        if self._valkey is None:
            self._valkey = self._ending.enter_context(EmbeddedValkey())
        return self._valkey.url

    @contextlib.asynccontextmanager
    async def worker(
        self, database: Database, *arguments: str, broker_url: str | None = None, **settings: Any
    ) -> AsyncIterator[Child]:
        """A `wakeful worker` process that serves the benchmark's agents; ready on entry, gone on exit."""
        command = ["worker", "--app", "benchmarks.sample:app", *arguments]
        async with self._process(command, database, broker_url=broker_url, **settings) as child:
            yield child

    @contextlib.asynccontextmanager
    async def scheduler(
        self, database: Database, *, broker_url: str | None = None, **settings: Any
    ) -> AsyncIterator[Child]:
        """A `wakeful scheduler` process, likewise."""
        async with self._process(["scheduler"], database, broker_url=broker_url, **settings) as child:
            yield child

    @contextlib.asynccontextmanager
    async def _process(self, command: list[str], database: Database, **settings: Any) -> AsyncIterator[Child]:
        environment = {
            **database.settings(artifacts_directory=self.folder / "artifacts", **settings).environment(),
            "PYTHONPATH": str(ROOT),
        }
        child = Child(command, environment=environment, log=self.folder / f"{command[0]}.log", name=command[0])
        try:
            await asyncio.to_thread(child.start)
            await asyncio.to_thread(child.wait_ready)
            yield child
        finally:
            await asyncio.to_thread(child.stop, 5.0)

    async def once(self, key: str, measure: Callable[[], Awaitable[Any]]) -> Any:
        """The result of a measurement that several figures are read from."""
        if key not in self._known:
            self._known[key] = await measure()
        return self._known[key]

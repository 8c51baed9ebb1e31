"""A store on a real PostgreSQL, and a second connection that holds what it waits for."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from support.database import Database
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.store import Addresses, PostgresStore

TESTS = Path(__file__).resolve().parents[1]
HELD = "held"
_LOCK = 4711

# A row that is inserted and stays invisible: its transaction waits for the advisory lock before it can commit.
_HOLD = f"""
CREATE FUNCTION public.hold_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock({_LOCK});
    RETURN NULL;
END $$;
CREATE TRIGGER hold AFTER INSERT ON wakeful.events
    FOR EACH ROW WHEN (NEW.payload ->> 'trigger' = '{HELD}') EXECUTE FUNCTION public.hold_event();
"""
_WAITING = """
SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid() ORDER BY query_start
"""


@asynccontextmanager
async def store_on(database: Database, **options: Any) -> AsyncIterator[PostgresStore]:
    """An open store that fails its test when a connection was not given back."""
    options = {"pool_size": 24, "worker_pool_size": 8, **options}
    store = PostgresStore(Addresses(app=database.dsn), role_prefix=database.role_prefix, **options)
    await store.open()
    try:
        yield store
        assert store.in_use == 0, f"{store.in_use} connections were taken and not given back"
    finally:
        await store.close()


@dataclass
class Admin:
    connection: psycopg.AsyncConnection[tuple[Any, ...]]

    async def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = await self.connection.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []

    async def waiting(self, count: int) -> list[int]:
        """Wait until PostgreSQL shows that many backends waiting for locks; their pids, the longest waiting first."""
        async with asyncio.timeout(30):
            while True:
                await self.fetch("SELECT pg_stat_clear_snapshot()")  # inside a transaction it would stay as it was
                pids = [row[0] for row in await self.fetch(_WAITING)]
                if len(pids) == count:
                    return pids
                await asyncio.sleep(0.01)  # polled: there is nothing to wait on

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Events with trigger `held` stay uncommitted for the length of the block."""
        if not await self.fetch("SELECT FROM pg_proc WHERE proname = 'hold_event'"):
            await self.connection.execute(_HOLD.encode())
        await self.fetch(f"SELECT pg_advisory_lock({_LOCK})")
        try:
            yield
        finally:
            await self.fetch(f"SELECT pg_advisory_unlock({_LOCK})")

    @asynccontextmanager
    async def locking(self, session: SessionRef) -> AsyncIterator[None]:
        """The session's row is locked, and not changed, for the length of the block."""
        async with self.connection.transaction():
            await self.fetch("SELECT FROM wakeful.sessions WHERE id = %s FOR UPDATE", [session.session_id])
            yield

    async def events(self, session: SessionRef) -> list[tuple[int, str]]:
        """Sequence and text of every note."""
        statement = "SELECT sequence, payload ->> 'trigger' FROM wakeful.events WHERE session_id = %s AND "
        return [
            (row[0], row[1])
            for row in await self.fetch(
                statement + "event_type = 'run.checkpointed' ORDER BY sequence", [session.session_id]
            )
        ]


class Writer:
    """Another process that appends notes `<name>-0`, `<name>-1`, … and says when each is committed."""

    def __init__(self, database: Database, session: SessionRef, name: str, count: int, *, start: int = 0) -> None:
        self._arguments = [
            database.dsn,
            database.role_prefix,
            str(session.tenant_id),
            str(session.session_id),
            name,
            str(start),
            str(count),
        ]
        self._process: asyncio.subprocess.Process | None = None
        self.acknowledged = start

    async def __aenter__(self) -> "Writer":
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "support.writer",
            *self._arguments,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self.ended()

    async def until(self, count: int) -> None:
        """Wait until it has been told of that many commits."""
        assert self._process is not None
        assert self._process.stdout is not None
        while self.acknowledged < count:
            line = await self._process.stdout.readline()
            assert line, f"the writer ended after {self.acknowledged} events"
            self.acknowledged += 1

    def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def ended(self) -> int:
        """Read what it still had to say; how it ended."""
        assert self._process is not None
        output, _ = await self._process.communicate()
        self.acknowledged += output.count(b"\n")
        return self._process.returncode or 0

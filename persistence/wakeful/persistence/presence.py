"""Who is there: marks of lease owners as session advisory locks, and a channel on which each can be called.

The lock is shared, so that a connection made anew never waits for its predecessor, nor a suspect's process for its
worker. Both need a connection that reaches PostgreSQL itself. A pooler in transaction mode gives the lock to a server
connection that may end, or go on, without the worker; it is told by its backend's number, which a pooler makes up.
"""

from collections.abc import Awaitable, Callable
from uuid import UUID

import psycopg

from wakeful.domain.errors import WakefulError
from wakeful.domain.ports.presence import Presence, mark_of
from wakeful.persistence.connections import Connection
from wakeful.persistence.errors import Translated
from wakeful.persistence.unit_of_work import Units

__all__ = ["BACKEND", "PostgresPresence", "call_worker", "channel_of", "mark_statement"]

_SPACE = 0x77616B65
"""The first half of our advisory locks' keys; the second is the mark."""

BACKEND = b"SELECT pg_backend_pid()"
_MARKS = b"""
SELECT DISTINCT objid::bigint
  FROM pg_locks
 WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2 AND granted
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def mark_statement(owner: UUID) -> bytes:
    """Takes the owner's mark for as long as the connection lasts; never waits."""
    mark = mark_of(owner)
    signed = mark - (1 << 32) if mark >= 1 << 31 else mark
    return f"SELECT pg_try_advisory_lock_shared({_SPACE}, {signed})".encode()


def channel_of(owner: UUID) -> str:
    return f"wakeful_worker_{owner.hex}"


async def call_worker(units: Units, tenant_id: UUID, owner: UUID) -> None:
    """Hint to a worker that its next heartbeat has something to tell it. Only after the commit that it is to see;
    never raises: without the hint it is told by the heartbeat that comes anyway."""
    try:
        async with units.begin(tenant_id) as unit:
            await unit.notify(channel_of(owner))
    except WakefulError:
        return


class PostgresPresence:
    """See `wakeful.domain.ports.presence`. Connects when it first looks, by `connect`, and again after a failure."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._number = 0
        self._direct = False

    async def look(self) -> Presence | None:
        try:
            with Translated(write=False):
                connection = await self._connected()
                if not self._direct:
                    return None
                rows = await (await connection.execute(_MARKS, (_SPACE,))).fetchall()
        except BaseException:
            await self.close()
            raise
        return Presence(self._number, frozenset(row[0] for row in rows))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()

    async def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = await self._connect()
            self._number += 1
            self._direct = await _reaches_postgresql(self._connection)
        return self._connection


async def _reaches_postgresql(connection: psycopg.AsyncConnection[tuple[int]]) -> bool:
    row = await (await connection.execute(BACKEND)).fetchone()
    return row is not None and row[0] == connection.info.backend_pid

"""The event log on PostgreSQL: one round trip per append, tenant, BEGIN and COMMIT included."""

from collections.abc import Collection
from typing import Any

import psycopg
from psycopg.rows import dict_row

from wakeful.domain.appends import Append, Appended
from wakeful.domain.errors import WakefulError
from wakeful.domain.events import Event
from wakeful.domain.ports.event_hints import EventHints
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.connections import Connection, HotPool
from wakeful.persistence.errors import Translated, refused_append, repeats_an_event
from wakeful.persistence.mappers.appends import append_parameters, appended_of
from wakeful.persistence.mappers.events import event_of
from wakeful.persistence.statements import HotStatement

__all__ = ["PostgresEventLog"]

_APPEND = HotStatement(
    "wakeful_append_v1",
    b"SELECT * FROM wakeful.append_v1(" + b", ".join(b"$%d" % number for number in range(1, 30)) + b")",
)
_REPEATED = b"SELECT * FROM wakeful.repeated_v1(%s, %s, %s, %s)"
_READ = b"SELECT * FROM wakeful.read_events_v1(%s, %s, %s, %s, %s)"

# What an append may be refused with although it was committed before: its own success moved what the guard looks at.
_MAYBE_REPEATED = frozenset({"WK001", "WK002", "WK003", "WK004", "WK008", "WK010"})


class PostgresEventLog:
    """See `wakeful.domain.ports.event_log` for what each method guarantees."""

    def __init__(self, pool: HotPool, hints: EventHints | None = None) -> None:
        self._pool, self._hints = pool, hints

    async def append(self, append: Append) -> Appended:
        parameters = append_parameters(append)
        async with self._pool.connection() as connection:
            try:
                row = await _APPEND.row(connection, parameters)
            except psycopg.Error as error:
                return await _refused(connection, append, error)
        if self._hints is not None:
            self._hints.grown(append.session)
        return appended_of(row)

    async def read(
        self, session: SessionRef, *, after: int = 0, limit: int = 1000, types: Collection[str] | None = None
    ) -> list[Event]:
        wanted = None if types is None else sorted(types)
        parameters = (session.tenant_id, session.session_id, str(after), str(limit), wanted)
        with Translated(write=False):
            async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(_READ, parameters)
                rows = await cursor.fetchall()
        owner = {"tenant_id": session.tenant_id, "session_id": session.session_id}
        return [event_of(row | owner) for row in rows]


async def _refused(connection: Connection, append: Append, error: psycopg.Error) -> Appended:
    """The first success, if this very append was committed before; otherwise raises what the refusal means.

    Looked up only now, in a transaction of its own. Nobody can have committed these ids in between and be missed:
    an append that was there first held the session's lock until its COMMIT, and this one waited for it.
    """
    repeats = repeats_an_event(error)
    if repeats or error.sqlstate in _MAYBE_REPEATED:
        with Translated(write=True):
            known = await _repeated(connection, append)
        if known is not None:
            return known
        if repeats:
            raise WakefulError(
                f"some of the append's event ids stand in session {append.session.session_id} already: an id is for "
                "one event of one append"
            ) from error
    with Translated(write=True, refusal=refused_append(append)):
        raise error


async def _repeated(connection: Connection, append: Append) -> Appended | None:
    """Where the append's events stand, if all of them do and are its own.

    A result's id is derived from its call, so it may stand there because somebody else gave the result: that is no
    repetition.
    """
    ids = [event.event_id for event in append.events]
    holder = append.lease.run.run_id if append.lease else None
    cursor = await connection.execute(_REPEATED, (append.session.tenant_id, append.session.session_id, ids, holder))
    stands: dict[Any, tuple[Any, ...]] = {row[0]: row for row in await cursor.fetchall()}
    for event in append.events:
        row = stands.get(event.event_id)
        if row is None or row[3:6] != (event.payload.TYPE, event.actor.type, event.actor.id):
            return None
    rows = sorted(stands.values(), key=lambda row: int(row[1]))
    return Appended(rows[0][1], rows[-1][1], rows[-1][2], cancel_requested=rows[0][6], repeated=True)

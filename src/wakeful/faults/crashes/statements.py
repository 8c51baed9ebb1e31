"""Making every SQL statement of a process a point, beneath everything that knows what it means."""

import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql

from wakeful.faults.crashes.points import Points
from wakeful.persistence.connections import Connection
from wakeful.persistence.statements import HotStatement

__all__ = ["watch_statements"]

_EVENT_TYPE = 5
"""The position of the first event's type among the parameters of an append."""
_SETUP = re.compile(
    r"SELECT current_user|select pg_catalog\.version|show |SELECT CAST\('test|SELECT typname|SET |SELECT t\.oid"
    r"|select current_schema",
    re.IGNORECASE,
)
"""What a new connection asks before it serves: it changes nothing, and how often it comes depends on the pools."""
_LONGEST_LABEL = 60
_EVENTS = "INSERT INTO wakeful.events"


def watch_statements(points: Points) -> None:
    """From now on and for good, every statement of this process is a point of `points`: for a forked child."""
    hot, execute, many = HotStatement.row, psycopg.AsyncCursor.execute, psycopg.AsyncCursor.executemany
    commit, rollback = psycopg.AsyncConnection.commit, psycopg.AsyncConnection.rollback
    written: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    async def watched_row(
        self: HotStatement, connection: Connection, parameters: Sequence[bytes | None]
    ) -> tuple[bytes | None, ...]:
        with points.point(_hot_label(self, parameters)):
            return await hot(self, connection, parameters)

    async def watched_execute(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        label = _label(query, params)
        if _SETUP.match(label):
            return await execute(self, query, params, **options)
        _remember(written, self.connection, label)
        with points.point(label):
            return await execute(self, query, params, **options)

    async def watched_many(self: Any, query: Any, params_seq: Any, **options: Any) -> None:
        sequence = list(params_seq)
        label = _label(query, sequence[0] if sequence else None)
        _remember(written, self.connection, label)
        with points.point(label):
            await many(self, query, sequence, **options)

    async def watched_commit(self: Any) -> None:
        if self.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            await commit(self)
            return
        with points.point(f"COMMIT of {written.pop(self, 'reading')}"):
            await commit(self)

    async def watched_rollback(self: Any) -> None:
        if self.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            await rollback(self)
            return
        with points.point(f"ROLLBACK of {written.pop(self, 'reading')}"):
            await rollback(self)

    patches: tuple[tuple[type, str, Any], ...] = (
        (HotStatement, "row", watched_row),
        (psycopg.AsyncCursor, "execute", watched_execute),
        (psycopg.AsyncCursor, "executemany", watched_many),
        (psycopg.AsyncConnection, "commit", watched_commit),
        (psycopg.AsyncConnection, "rollback", watched_rollback),
    )
    for owner, name, replacement in patches:
        setattr(owner, name, replacement)


def _hot_label(statement: HotStatement, parameters: Sequence[bytes | None]) -> str:
    name = statement.name
    event = parameters[_EVENT_TYPE] if "append" in name else None
    return f"{name} {event.decode()}" if event is not None else name


def _remember(written: WeakKeyDictionary[Any, str], connection: Any, label: str) -> None:
    """A COMMIT is called by the events that were written in it, or else by the last that was."""
    if label.startswith(("INSERT", "UPDATE", "DELETE")) and not written.get(connection, "").startswith(_EVENTS):
        written[connection] = label


def _label(query: Any, params: Any) -> str:
    text = query.as_string(None) if isinstance(query, sql.Composable) else query
    if isinstance(text, bytes):
        text = text.decode()
    plain = " ".join(re.sub(r"--[^\n]*", "", str(text)).split())
    if plain.startswith(_EVENTS) and isinstance(params, dict):
        types = sorted(str(value) for name, value in params.items() if name.startswith("event_type"))
        return f"{_EVENTS} {' '.join(types)}"
    return plain[:_LONGEST_LABEL]

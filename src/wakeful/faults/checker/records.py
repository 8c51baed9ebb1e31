"""The rows of one session as they are stored."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row

__all__ = ["Call", "EventRecord", "RunRecord", "SessionRecord", "read_sessions"]

_SESSIONS = b"SELECT id, next_event_sequence, last_event_at FROM wakeful.sessions WHERE tenant_id = %s ORDER BY id"
_EVENTS = b"""
SELECT session_id, sequence, run_id, event_type, actor_type, actor_id, payload, created_at
  FROM wakeful.events WHERE tenant_id = %s AND session_id = %s ORDER BY sequence
"""
_RUNS = b"""
SELECT id, session_id, status, step, tool_call_count, lease_epoch, lease_owner, lease_expirations, budget,
       jsonb_array_length(attempt_failures) AS crashes, finished_at, parent_run_id, result_delivered_at
  FROM wakeful.runs WHERE tenant_id = %s AND session_id = %s ORDER BY created_at, id
"""
_CALLS = b"""
SELECT id, run_id, origin, step, position, tool, idempotency_class, idempotency_key, status, child_run_id
  FROM wakeful.tool_invocations WHERE tenant_id = %s AND session_id = %s ORDER BY run_id, step, position
"""


@dataclass(slots=True)
class EventRecord:
    session_id: UUID
    sequence: int
    run_id: UUID | None
    event_type: str
    actor_type: str
    actor_id: str | None
    payload: dict[str, Any]
    created_at: datetime


@dataclass(slots=True)
class RunRecord:
    id: UUID
    session_id: UUID
    status: str
    step: int
    tool_call_count: int
    lease_epoch: int
    lease_owner: UUID | None
    lease_expirations: int
    budget: dict[str, Any]
    crashes: int
    finished_at: datetime | None
    parent_run_id: UUID | None
    result_delivered_at: datetime | None

    @property
    def terminal(self) -> bool:
        return self.status in ("COMPLETED", "FAILED", "CANCELLED")


@dataclass(slots=True)
class Call:
    id: UUID
    run_id: UUID
    origin: str
    step: int
    position: int
    tool: str
    idempotency_class: str
    idempotency_key: str
    status: str
    child_run_id: UUID | None


@dataclass(slots=True)
class SessionRecord:
    """A session, its runs, and the events and calls of each run. Events of no run are under None."""

    id: UUID
    next_event_sequence: int
    last_event_at: datetime | None
    events: list[EventRecord] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def events_by_run(self) -> dict[UUID | None, list[EventRecord]]:
        found: dict[UUID | None, list[EventRecord]] = defaultdict(list)
        for event in self.events:
            found[event.run_id].append(event)
        return found


def read_sessions(connection: psycopg.Connection[Any], tenant: UUID) -> Iterator[SessionRecord]:
    """The tenant's sessions one after another; all in the snapshot of the transaction that is open."""
    for session_id, head, at in connection.execute(_SESSIONS, [tenant]).fetchall():
        scope = [tenant, session_id]
        yield SessionRecord(
            session_id,
            head,
            at,
            _rows(connection, EventRecord, _EVENTS, scope),
            _rows(connection, RunRecord, _RUNS, scope),
            _rows(connection, Call, _CALLS, scope),
        )


def _rows(connection: psycopg.Connection[Any], kind: type[Any], statement: bytes, scope: list[UUID]) -> list[Any]:
    with connection.cursor(row_factory=class_row(kind)) as cursor:
        return cursor.execute(statement, scope).fetchall()

"""What stands in the database between two processes of an experiment, and at its end."""

from typing import Any
from uuid import UUID

import psycopg

__all__ = ["Place", "at_stake", "committed_steps", "history", "statuses"]

Place = tuple[int, int, int]
"""A call by the order of its session among the tenant's, its step and its position."""

_STEPS = b"""
SELECT run_id, max((payload ->> 'step')::integer) FROM wakeful.events
 WHERE tenant_id = %s AND event_type = 'assistant.message.created' GROUP BY run_id
"""
_AT_STAKE = b"""
SELECT s.number, i.step, i.position
  FROM wakeful.tool_invocations AS i
  JOIN (SELECT id, row_number() OVER (ORDER BY created_at, id) - 1 AS number
          FROM wakeful.sessions WHERE tenant_id = %(tenant)s) AS s ON s.id = i.session_id
 WHERE i.tenant_id = %(tenant)s AND i.status = 'RUNNING' AND i.idempotency_class = 'non_idempotent'
"""
_RUNS = b"SELECT id, status FROM wakeful.runs WHERE tenant_id = %s ORDER BY created_at, id"
_HISTORY = b"""
SELECT e.session_id, e.event_type, e.payload
  FROM wakeful.events AS e
  JOIN wakeful.sessions AS s ON s.tenant_id = e.tenant_id AND s.id = e.session_id
 WHERE e.tenant_id = %s AND (e.event_type IN ('user.message.received', 'assistant.message.created',
                                              'context.compacted') OR e.payload ? 'result')
 ORDER BY s.created_at, s.id, e.sequence
"""


def committed_steps(connection: psycopg.Connection[Any], tenant: UUID) -> dict[UUID, int]:
    """The newest step of each run whose turn is committed: asking the model for it again is forbidden."""
    return dict(connection.execute(_STEPS, [tenant]).fetchall())


def at_stake(connection: psycopg.Connection[Any], tenant: UUID) -> set[Place]:
    """Non-idempotent calls whose intent stands without a result: nobody can know whether they happened."""
    return {(row[0], row[1], row[2]) for row in connection.execute(_AT_STAKE, {"tenant": tenant})}


def statuses(connection: psycopg.Connection[Any], tenant: UUID) -> list[str]:
    """The end of every run, in the order of their submission."""
    return [row[1] for row in connection.execute(_RUNS, [tenant])]


def history(connection: psycopg.Connection[Any], tenant: UUID) -> list[Any]:
    """What was said in every session, in a form in which two executions compare: ids and times left out, the results
    of a batch behind its turn in the order of its calls."""
    sessions: dict[UUID, int] = {}
    said: list[Any] = []
    for session, kind, payload in connection.execute(_HISTORY, [tenant]):
        number = sessions.setdefault(session, len(sessions))
        if "result" in payload:
            result = payload["result"]
            place = (number, payload["step"], payload["position"])
            said.append((number, payload["step"], 1, payload["position"], _result(place, payload["tool"], result)))
        elif kind == "assistant.message.created":
            calls = [(call["tool"], call["arguments"]) for call in payload["calls"]]
            said.append((number, payload["step"], 0, 0, (kind, payload["content"], calls)))
        else:
            said.append((number, 0, 0, len(said), (kind, payload.get("content"))))
    return [line[-1] for line in sorted(said, key=lambda line: line[:4])]


def _result(place: Place, tool: str, result: dict[str, Any]) -> Any:
    return (place, tool, result["status"], result.get("data"))

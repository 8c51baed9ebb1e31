"""Queued runs by the thousand, loaded beside the product: only what is measured goes through it."""

from typing import Any

import psycopg

from benchmarks.bench import SCOPE

__all__ = ["load_queue", "load_runs", "load_sessions"]

_SESSIONS = """
INSERT INTO wakeful.sessions (tenant_id, id, principal_id, agent)
SELECT %(tenant)s, uuidv7(), %(principal)s, %(agent)s FROM generate_series(1, %(count)s)
"""
_RUNS_OF_SESSIONS = """
INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status, priority, created_at)
SELECT tenant_id, uuidv7(), id, principal_id, agent, 1, 'QUEUED', 0, clock_timestamp()
  FROM wakeful.sessions WHERE tenant_id = %(tenant)s AND agent = %(agent)s
"""
# A claim reads runs alone, so their sessions need not be there.
_RUNS = """
INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status, priority,
       scheduled_for)
SELECT %(tenant)s, uuidv7(), uuidv7(), %(principal)s, %(agent)s, 1, 'QUEUED', 0,
       now() + %(later)s + n * interval '1 microsecond'
  FROM generate_series(1, %(count)s) AS n
"""
_INDEXES = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
 WHERE indrelid = 'wakeful.runs'::regclass AND NOT indisprimary
"""


def load_sessions(administrator: psycopg.Connection[Any], agent: str, count: int) -> None:
    administrator.execute(_SESSIONS, _parameters(agent, count))


def load_queue(administrator: psycopg.Connection[Any], agent: str, count: int) -> None:
    """So many sessions, each with a queued run that is due; the tables as after a vacuum."""
    load_sessions(administrator, agent, count)
    administrator.execute(_RUNS_OF_SESSIONS, _parameters(agent, count))
    for table in ("runs", "sessions", "events"):
        administrator.execute(f"VACUUM (ANALYZE) wakeful.{table}")


def load_runs(administrator: psycopg.Connection[Any], agent: str, count: int, *, later: str) -> None:
    """So many queued runs, due after `later`, an interval; their indexes are built at the end."""
    indexes = administrator.execute(_INDEXES).fetchall()
    for name, _ in indexes:
        administrator.execute(f"DROP INDEX {name}")
    administrator.execute(_RUNS, {**_parameters(agent, count), "later": later})
    for _, definition in indexes:
        administrator.execute(definition)
    administrator.execute("VACUUM (ANALYZE) wakeful.runs")
    administrator.execute("CHECKPOINT")


def _parameters(agent: str, count: int) -> dict[str, Any]:
    return {"tenant": SCOPE.tenant_id, "principal": SCOPE.principal_id, "agent": agent, "count": count}

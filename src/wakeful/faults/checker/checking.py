"""Checking a database, tenant by tenant."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from wakeful.faults.checker.effects import check_effects
from wakeful.faults.checker.findings import Finding
from wakeful.faults.checker.logs import check_log, check_run_log
from wakeful.faults.checker.records import Call, SessionRecord, read_sessions
from wakeful.faults.checker.turns import check_turns
from wakeful.persistence.connecting import ConnectionSettings, sync_connection
from wakeful.persistence.installation import find_installation
from wakeful.persistence.roles import Role

__all__ = ["Checked", "check_database", "check_snapshot", "check_tenant"]

_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TENANT = b"SELECT set_config('wakeful.tenant', %s, true)"
_TENANTS = b"SELECT DISTINCT tenant_id FROM wakeful.runs ORDER BY tenant_id"
_FUTURE = b"""
SELECT 'session' AS what, id FROM wakeful.sessions WHERE tenant_id = %(tenant)s
   AND greatest(created_at, updated_at, last_event_at) > clock_timestamp()
UNION ALL SELECT 'run', id FROM wakeful.runs WHERE tenant_id = %(tenant)s
   AND greatest(created_at, updated_at, started_at, finished_at) > clock_timestamp()
UNION ALL SELECT 'call', id FROM wakeful.tool_invocations WHERE tenant_id = %(tenant)s
   AND greatest(created_at, updated_at, started_at, finished_at) > clock_timestamp()
"""
_CHECKPOINTS = b"""
SELECT c.run_id, c.number FROM (
        SELECT run_id, session_id, number, epoch, last_event_sequence,
               lag(epoch) OVER (PARTITION BY run_id ORDER BY number) AS before
          FROM wakeful.run_checkpoints WHERE tenant_id = %(tenant)s) AS c
  JOIN wakeful.sessions AS s ON s.tenant_id = %(tenant)s AND s.id = c.session_id
 WHERE c.last_event_sequence >= s.next_event_sequence OR c.epoch < c.before
"""
_UNDELIVERED = b"""
SELECT id FROM wakeful.runs WHERE tenant_id = %(tenant)s AND parent_run_id IS NOT NULL
   AND result_delivered_at IS NULL AND status IN ('COMPLETED', 'FAILED', 'CANCELLED')
"""


@dataclass(slots=True)
class Checked:
    """What was looked at, and what was found."""

    tenants: int = 0
    sessions: int = 0
    runs: int = 0
    events: int = 0
    findings: list[Finding] = field(default_factory=list)


def check_database(
    dsn: str,
    *,
    role_prefix: str | None = None,
    tenants: Collection[UUID] | None = None,
    effects: Mapping[str, int] | None = None,
    tools: frozenset[str] = frozenset(),
    settled: bool = False,
) -> Checked:
    """Check every tenant that has a run, or those given; what is running may go on meanwhile.

    `effects` counts, by idempotency key, what a witness outside saw of the calls of `tools`. `settled` says that
    everything should have ended: a run that has not is a finding. Writes nothing. Not for a running event loop: call
    it in a thread. Raises Unavailable, ConfigurationError.
    """
    found = asyncio.run(find_installation(dsn, role_prefix))
    app = ConnectionSettings(dsn, Role.APP, found.role_prefix)
    checked, calls = Checked(), list[Call]()
    if tenants is None:
        worker = ConnectionSettings(dsn, Role.WORKER, found.role_prefix, scoped=found.single_role)
        with sync_connection(worker) as connection:
            tenants = [row[0] for row in connection.execute(_TENANTS)]
    with sync_connection(app) as connection:
        for tenant in tenants:
            calls += check_tenant(connection, tenant, checked, settled=settled)
    if effects is not None:
        checked.findings += check_effects(effects, calls, tools=tools)
    return checked


def check_tenant(
    connection: psycopg.Connection[Any], tenant: UUID, checked: Checked, *, settled: bool = False
) -> list[Call]:
    """Add what one tenant's rows show to `checked`, and return its calls. `connection` is in autocommit."""
    connection.execute(_BEGIN)
    try:
        return check_snapshot(connection, tenant, checked, settled=settled)
    finally:
        connection.execute(b"ROLLBACK")


def check_snapshot(
    connection: psycopg.Connection[Any], tenant: UUID, checked: Checked, *, settled: bool = False
) -> list[Call]:
    """The same inside the caller's transaction."""
    calls: list[Call] = []
    connection.execute(_TENANT, [str(tenant)])
    for session in read_sessions(connection, tenant):
        checked.sessions += 1
        checked.runs += len(session.runs)
        checked.events += len(session.events)
        calls += session.calls
        checked.findings += _session(session, settled=settled)
    checked.findings += _rows(connection, tenant, settled=settled)
    checked.tenants += 1
    return calls


def _session(session: SessionRecord, *, settled: bool) -> Iterator[Finding]:
    yield from check_log(session)
    events = session.events_by_run()
    for run in session.runs:
        mine = events.get(run.id, [])
        yield from check_run_log(run, mine)
        yield from check_turns(run, mine, [call for call in session.calls if call.run_id == run.id])
        if settled and not run.terminal:
            yield Finding("no run is left behind", run.id, run.status)


def _rows(connection: psycopg.Connection[Any], tenant: UUID, *, settled: bool) -> Iterator[Finding]:
    given = {"tenant": tenant}
    for what, identity in connection.execute(_FUTURE, given):
        yield Finding("no time lies in the future", identity, f"of a {what}")
    for run, number in connection.execute(_CHECKPOINTS, given):
        yield Finding("a checkpoint lies within the log and its epoch", run, f"number {number}")
    if settled:
        for (child,) in connection.execute(_UNDELIVERED, given):
            yield Finding("a child's result reaches its parent", child, "not delivered")

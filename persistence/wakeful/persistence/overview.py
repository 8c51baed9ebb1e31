"""What waits in the queue, over all tenants: for whoever runs the system, with the rights that a worker has."""

from dataclasses import dataclass

import psycopg
from psycopg import sql

from wakeful.domain.errors import NotAllowed
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.persistence.roles import SCOPE_SETTING, WORKER_SCOPE, Mode, Role
from wakeful.persistence.schema.facts import Direct, Facts, connect, facts_of

__all__ = ["AgentQueue", "Overview", "QueueCount", "overview"]

_COUNTS = """
SELECT status, priority, count(*)::int,
       extract(epoch FROM statement_timestamp() - min(due_at) FILTER (WHERE due_at <= statement_timestamp()))::float8
  FROM wakeful.runs
 WHERE status IN ('QUEUED', 'RUNNING', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD')
 GROUP BY status, priority ORDER BY priority, status
"""
# Counted over the queue's own index, so a long history costs nothing.
_AGENTS = """
SELECT agent, count(*)::int, extract(epoch FROM statement_timestamp() - min(due_at))::float8
  FROM wakeful.runs
 WHERE status = 'QUEUED' AND due_at <= statement_timestamp()
 GROUP BY agent ORDER BY agent
"""
_EXPIRED = """
SELECT count(*)::int FROM wakeful.runs WHERE status = 'RUNNING' AND lease_expires_at < statement_timestamp()
"""
_WORKERS = "SELECT count(DISTINCT lease_owner)::int FROM wakeful.runs WHERE status = 'RUNNING'"
_TICK = "SELECT extract(epoch FROM statement_timestamp() - max(ticked_at))::float8 FROM wakeful.sweep_ticks"


@dataclass(frozen=True, slots=True)
class QueueCount:
    """Active runs of one status and class; `oldest_seconds` is how long the first due one has been due."""

    status: RunStatus
    priority: PriorityClass
    count: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class AgentQueue:
    """Due runs of one agent that nobody has claimed."""

    agent: str
    due: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Overview:
    counts: tuple[QueueCount, ...]
    due: tuple[AgentQueue, ...]
    expired_leases: int
    """RUNNING runs whose lease is over: a sweep should have taken them."""
    busy_workers: int
    """Processes that hold at least one run."""
    last_sweep_seconds: float | None
    """How long ago any sweeper looked; None if none ever did."""


def overview(dsn: str, *, role_prefix: str | None = None) -> Overview:
    """Read the queue in one transaction that changes nothing. `dsn` is the direct address; the schema must be there.

    Raises Unavailable, ConfigurationError, and NotAllowed when the login may not become the worker role.
    """
    with connect(dsn) as connection:
        facts = facts_of(connection, role_prefix)
        connection.read_only = True
        try:
            with connection.transaction():
                _become_worker(connection, facts)
                return _read(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise NotAllowed(f"login {facts.login} may not look at the queue: {error.diag.message_primary}") from error


def _become_worker(connection: Direct, facts: Facts) -> None:
    """For this one transaction; nothing else uses the connection."""
    if facts.recorded is not None and facts.recorded[0] is Mode.SINGLE_ROLE:
        connection.execute("SELECT set_config(%s, %s, true)", [SCOPE_SETTING, WORKER_SCOPE])
        return
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(facts.roles[Role.WORKER])))


def _read(connection: Direct) -> Overview:
    counts = [
        QueueCount(RunStatus(status), PriorityClass(priority), count, oldest)
        for status, priority, count, oldest in connection.execute(_COUNTS)
    ]
    due = [AgentQueue(agent, count, oldest) for agent, count, oldest in connection.execute(_AGENTS)]
    return Overview(
        counts=tuple(counts),
        due=tuple(due),
        expired_leases=_one(connection, _EXPIRED) or 0,
        busy_workers=_one(connection, _WORKERS) or 0,
        last_sweep_seconds=_one(connection, _TICK),
    )


def _one(connection: Direct, statement: str) -> int | None:
    row = connection.execute(statement.encode()).fetchone()
    return row[0] if row else None

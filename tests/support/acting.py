"""Runs in any state on a real PostgreSQL, everything that acts on them without a lease, and a second connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncEngine

from support.database import Database
from wakeful.domain.ids import new_id
from wakeful.domain.invocations import NewInvocation
from wakeful.domain.ports.sweeps import ExpiredLease
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import IdempotencyClass, InvocationStatus, RunStatus
from wakeful.persistence.child_sweeps import PostgresChildSweeps
from wakeful.persistence.connecting import ConnectionSettings
from wakeful.persistence.control import PostgresRunControl
from wakeful.persistence.engine import make_engine
from wakeful.persistence.housekeeping import PostgresHousekeeping
from wakeful.persistence.readers import PostgresRunReader
from wakeful.persistence.roles import Role
from wakeful.persistence.sessions import PostgresSessions
from wakeful.persistence.sweeps import PostgresRunSweeps
from wakeful.persistence.unit_of_work import AcrossTenants, Units

Connection = psycopg.AsyncConnection[dict[str, Any]]

_BLOCKED = """
SELECT count(*) AS waiting FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()
"""


@dataclass
class World:
    """`admin` is a superuser's connection in autocommit: it sees and arranges everything."""

    database: Database
    app: AsyncEngine = field(repr=False)
    worker: AsyncEngine = field(repr=False)
    admin: Connection = field(repr=False)

    def __post_init__(self) -> None:
        self.units, self.across = Units(self.app), AcrossTenants(self.worker)
        self.control = PostgresRunControl(self.units)
        self.sweeps = PostgresRunSweeps(self.units, self.across)
        self.child_sweeps = PostgresChildSweeps(self.units, self.across)
        self.housekeeping = PostgresHousekeeping(self.units, self.across)
        self.sessions = PostgresSessions(self.units)
        self.runs = PostgresRunReader(self.units)

    async def run(self, status: RunStatus = RunStatus.QUEUED, *, scope: Scope | None = None, **columns: Any) -> RunRef:
        """A run in a session of its own, in any state."""
        scope = scope or Scope(uuid4(), uuid4())
        session = await self.sessions.create(NewSession(scope, agent="support"))
        ref = RunRef(scope.tenant_id, session.session_id, new_id())
        if status is RunStatus.RUNNING:
            leased = {"lease_owner": uuid4(), "lease_epoch": 1, "attempts": 1, "lease_expires_at": "1 minute"}
            columns = leased | columns
        if isinstance(expires := columns.get("lease_expires_at"), str):
            columns["lease_expires_at"] = await self.clock(expires)
        values = {
            "tenant_id": ref.tenant_id,
            "id": ref.run_id,
            "session_id": ref.session_id,
            "principal_id": scope.principal_id,
            "agent": "support",
            "agent_version": 1,
            "status": status.value,
            "budget": {"max_steps": 50, "max_tool_calls": None, "max_tokens": None},
        }
        await self.insert("runs", values | columns)
        return ref

    async def call(
        self,
        run: RunRef,
        status: InvocationStatus = InvocationStatus.REQUESTED,
        *,
        step: int = 1,
        position: int = 0,
        kind: IdempotencyClass = IdempotencyClass.IDEMPOTENT,
        **columns: Any,
    ) -> UUID:
        """A call of the run, in any state; its id."""
        new = NewInvocation(run.run_id, step, position, "refund", "hash", kind)
        values = {
            "tenant_id": run.tenant_id,
            "id": new.id,
            "session_id": run.session_id,
            "run_id": run.run_id,
            "step": step,
            "position": position,
            "tool": new.tool,
            "arguments_hash": new.arguments_hash,
            "idempotency_class": kind.value,
            "idempotency_key": new.idempotency_key,
            "status": status.value,
            "epoch": 1 if status is InvocationStatus.RUNNING else None,
        }
        await self.insert("tool_invocations", values | columns)
        return new.id

    async def insert(self, table: str, values: dict[str, Any]) -> None:
        given = {k: Jsonb(v) if isinstance(v, dict | list) else v for k, v in values.items()}
        names, holes = ", ".join(given), ", ".join(["%s"] * len(given))
        await self.admin.execute(f"INSERT INTO wakeful.{table} ({names}) VALUES ({holes})".encode(), [*given.values()])

    async def row(self, run: RunRef) -> dict[str, Any]:
        found = await self.admin.execute("SELECT * FROM wakeful.runs WHERE id = %s", [run.run_id])
        return await found.fetchone() or {}

    async def status(self, run: RunRef) -> RunStatus:
        return RunStatus((await self.row(run))["status"])

    async def calls(self, run: RunRef) -> dict[UUID, InvocationStatus]:
        found = await self.admin.execute(
            "SELECT id, status FROM wakeful.tool_invocations WHERE run_id=%s", [run.run_id]
        )
        return {row["id"]: InvocationStatus(row["status"]) for row in await found.fetchall()}

    async def events(self, run: RunRef) -> list[dict[str, Any]]:
        """The run's events in order: `type`, `payload`, `actor_type`, `sequence`."""
        found = await self.admin.execute(
            "SELECT event_type AS type, payload, actor_type, sequence, created_at FROM wakeful.events"
            " WHERE session_id = %s AND run_id = %s ORDER BY sequence",
            [run.session_id, run.run_id],
        )
        return await found.fetchall()

    async def types(self, run: RunRef) -> list[str]:
        return [event["type"] for event in await self.events(run)]

    async def results(self, run: RunRef) -> dict[UUID, list[str]]:
        """Per call, the status in every result event it has."""
        results: dict[UUID, list[str]] = {call: [] for call in await self.calls(run)}
        for event in await self.events(run):
            if "result" in event["payload"]:
                results[UUID(event["payload"]["invocation_id"])].append(event["payload"]["result"]["status"])
        return results

    async def clock(self, offset: str = "0") -> datetime:
        """The database's clock, moved by an interval."""
        found = await self.admin.execute("SELECT clock_timestamp() + %s::interval AS at", [offset])
        row = await found.fetchone()
        assert row is not None
        at: datetime = row["at"]
        return at

    async def expired(self, **columns: Any) -> tuple[RunRef, ExpiredLease]:
        """A RUNNING run whose lease has expired, and the candidate that a sweep would find."""
        run = await self.run(RunStatus.RUNNING, **({"lease_expires_at": "-1 second"} | columns))
        row = await self.row(run)
        return run, ExpiredLease(run, row["lease_owner"], row["lease_epoch"])

    @asynccontextmanager
    async def other(self) -> AsyncIterator[Connection]:
        """Another superuser connection, inside a transaction that commits at the end."""
        async with await psycopg.AsyncConnection.connect(self.database.dsn, row_factory=dict_row) as connection:
            yield connection

    async def until_blocked(self, count: int = 1) -> None:
        """Wait until PostgreSQL shows `count` connections waiting for a lock."""
        async with asyncio.timeout(10):
            while True:
                row = await (await self.admin.execute(_BLOCKED)).fetchone()
                if row is not None and row["waiting"] >= count:
                    return
                await asyncio.sleep(0.01)  # a lock wait announces itself to nobody


@asynccontextmanager
async def world_on(database: Database, *, pool_size: int = 5) -> AsyncIterator[World]:
    app, worker = (
        make_engine(ConnectionSettings(database.dsn, role, database.role_prefix), pool_size=pool_size)
        for role in (Role.APP, Role.WORKER)
    )
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True, row_factory=dict_row) as admin:
        try:
            yield World(database, app, worker, admin)
        finally:
            await app.dispose()
            await worker.dispose()


def plain(value: Any) -> Any:
    """A value as JSON would carry it."""
    return json.loads(json.dumps(value, default=str))

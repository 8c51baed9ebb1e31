"""Runs of one tenant, for everybody who does not hold their lease."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from wakeful.domain.edges import Edge
from wakeful.domain.errors import NotFound
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import TERMINAL_RUNS, RunStatus
from wakeful.persistence.mappers.runs import run_of
from wakeful.persistence.repositories.base import first, rows, table_of
from wakeful.persistence.tables import RunRow

__all__ = ["RunRepository"]

RUNS = table_of(RunRow)
_TERMINAL = sorted(TERMINAL_RUNS)


class RunRepository:
    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self._session, self._tenant_id = session, tenant_id

    async def get(self, scope: Scope, run_id: UUID) -> Run:
        """Raises NotFound, also for another principal's."""
        row = await first(self._session, self._one(run_id).where(RUNS.c.principal_id == scope.principal_id))
        if row is None:
            raise NotFound("run", run_id)
        return run_of(row)

    async def find(self, run_id: UUID) -> Run | None:
        """Whoever owns it within the tenant, without a lock: only what never changes again may be believed."""
        row = await first(self._session, self._one(run_id))
        return None if row is None else run_of(row)

    async def lock(self, run: RunRef) -> Run:
        """Take the run's row lock; the caller holds its session's. Raises NotFound."""
        row = await first(
            self._session,
            self._one(run.run_id).where(RUNS.c.session_id == run.session_id).with_for_update(key_share=True),
        )
        if row is None:
            raise NotFound("run", run.run_id)
        return run_of(row)

    async def active_in(self, session_id: UUID) -> bool:
        """Whether the session has a run that has not ended; stays so while its session is locked."""
        statement = select(RUNS.c.id).where(
            RUNS.c.tenant_id == self._tenant_id, RUNS.c.session_id == session_id, RUNS.c.status.not_in(_TERMINAL)
        )
        return await self._session.scalar(statement.limit(1)) is not None

    async def page(
        self, scope: Scope, *, session_id: UUID | None, statuses: Sequence[RunStatus], limit: int, before: Run | None
    ) -> list[Run]:
        """Newest first."""
        statement = (
            select(RUNS)
            .where(RUNS.c.tenant_id == self._tenant_id, RUNS.c.principal_id == scope.principal_id)
            .order_by(RUNS.c.created_at.desc(), RUNS.c.id)
            .limit(limit)
        )
        if session_id is not None:
            statement = statement.where(RUNS.c.session_id == session_id)
        if statuses:
            statement = statement.where(RUNS.c.status.in_([status.value for status in statuses]))
        if before is not None:
            older = RUNS.c.created_at < before.created_at
            level = and_(RUNS.c.created_at == before.created_at, RUNS.c.id > before.ref.run_id)
            statement = statement.where(or_(older, level))
        return [run_of(row) for row in await rows(self._session, statement)]

    async def write(self, run: Run, edge: Edge, at: datetime) -> None:
        """Take the edge; the caller holds the run's lock and has appended the edge's events at `at`."""
        values = _edge_values(run, edge, at)
        statement = update(RUNS).where(RUNS.c.tenant_id == self._tenant_id, RUNS.c.id == run.ref.run_id)
        await self._session.execute(statement.values(values))

    async def mark_delivered(self, run_id: UUID) -> bool:
        """Stamp an ended child's result as delivered; False when it was already. The caller holds its lock."""
        statement = (
            update(RUNS)
            .where(
                RUNS.c.tenant_id == self._tenant_id,
                RUNS.c.id == run_id,
                RUNS.c.status.in_(_TERMINAL),
                RUNS.c.result_delivered_at.is_(None),
            )
            .values(result_delivered_at=func.clock_timestamp())
            .returning(RUNS.c.id)
        )
        return await self._session.scalar(statement) is not None

    async def clock(self) -> datetime:
        """The database's time now; asked for after the locks, it is no older than they are."""
        at: datetime = (await self._session.execute(select(func.clock_timestamp()))).scalar_one()
        return at

    def _one(self, run_id: UUID) -> Select[Any]:
        return select(RUNS).where(RUNS.c.tenant_id == self._tenant_id, RUNS.c.id == run_id)


def _edge_values(run: Run, edge: Edge, at: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {"status": edge.status.value, "updated_at": at}
    if run.status is RunStatus.RUNNING and edge.status is not RunStatus.RUNNING:
        values |= {"lease_owner": None, "lease_expires_at": None}
    if edge.status.terminal:
        values |= {"finished_at": at}
    if edge.failure is not None:
        values |= {"failure": edge.failure.model_dump(mode="json")}
    if edge.cancel_requested:
        values |= {"cancel_requested_at": at}
    if edge.delay is not None:
        values |= {"scheduled_for": at + edge.delay}
    if edge.crash is not None:
        values |= {
            "lease_expirations": run.lease_expirations + 1,
            "suspect": True,
            "attempt_failures": [*run.attempt_failures, edge.crash],
        }
    return values

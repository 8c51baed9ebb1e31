"""Tool invocations of one tenant."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from wakeful.domain.closing import OPEN_CALLS
from wakeful.domain.errors import AlreadyAnswered
from wakeful.domain.invocations import Invocation, InvocationChange
from wakeful.persistence.mappers.invocations import invocation_of
from wakeful.persistence.repositories.base import rows, table_of
from wakeful.persistence.tables import ToolInvocationRow

__all__ = ["InvocationRepository"]

CALLS = table_of(ToolInvocationRow)
_OPEN = sorted(OPEN_CALLS)


class InvocationRepository:
    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self._session, self._tenant_id = session, tenant_id

    async def lock_open(self, run_id: UUID, also: UUID | None) -> list[Invocation]:
        """Lock the run's calls without a result, and the call `also` in whatever state; the caller holds the
        run's lock."""
        wanted = CALLS.c.status.in_(_OPEN)
        statement = (
            select(CALLS)
            .where(
                CALLS.c.tenant_id == self._tenant_id,
                CALLS.c.run_id == run_id,
                wanted if also is None else or_(wanted, CALLS.c.id == also),
            )
            .order_by(CALLS.c.step, CALLS.c.position, CALLS.c.origin)
            .with_for_update()
        )
        return [invocation_of(row) for row in await rows(self._session, statement)]

    async def of_run(self, run_id: UUID) -> list[Invocation]:
        """In (step, position) order."""
        statement = (
            select(CALLS)
            .where(CALLS.c.tenant_id == self._tenant_id, CALLS.c.run_id == run_id)
            .order_by(CALLS.c.step, CALLS.c.position, CALLS.c.origin)
        )
        return [invocation_of(row) for row in await rows(self._session, statement)]

    async def apply(self, changes: Sequence[InvocationChange], at: datetime) -> None:
        """Make the transitions. Raises AlreadyAnswered when a call is in none of its expected states."""
        for change in changes:
            statement = (
                update(CALLS)
                .where(
                    CALLS.c.tenant_id == self._tenant_id,
                    CALLS.c.id == change.invocation_id,
                    CALLS.c.status.in_([status.value for status in change.expected]),
                )
                .values(_change_values(change, at))
                .returning(CALLS.c.id)
            )
            if await self._session.scalar(statement) is None:
                raise AlreadyAnswered(change.invocation_id)

    async def resolved(self, call: UUID, at: datetime) -> None:
        """Stamp a resolution; the call's lock is held."""
        statement = update(CALLS).where(CALLS.c.tenant_id == self._tenant_id, CALLS.c.id == call)
        await self._session.execute(statement.values(resolved_at=at, updated_at=at))


def _change_values(change: InvocationChange, at: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {"status": change.status.value, "updated_at": at}
    if change.status.terminal:
        values |= {"finished_at": at}
    if change.approved_by is not None:
        values |= {"approved_by": change.approved_by}
    if change.context_updates is not None:
        values |= {"context_updates": change.context_updates}
    return values

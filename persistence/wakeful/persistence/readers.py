"""RunReader on PostgreSQL: what owners may read of their runs."""

from collections.abc import Sequence
from uuid import UUID

from wakeful.domain.invocations import Invocation
from wakeful.domain.runs import Run
from wakeful.domain.scopes import Scope
from wakeful.domain.states import RunStatus
from wakeful.persistence.sessions import checked_limit
from wakeful.persistence.unit_of_work import Units

__all__ = ["PostgresRunReader"]


class PostgresRunReader:
    """See `wakeful.domain.ports.sessions`."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def get(self, scope: Scope, run_id: UUID) -> Run:
        async with self._units.begin(scope.tenant_id) as unit:
            return await unit.runs.get(scope, run_id)

    async def page(
        self,
        scope: Scope,
        *,
        session_id: UUID | None = None,
        statuses: Sequence[RunStatus] = (),
        limit: int = 50,
        before: UUID | None = None,
    ) -> list[Run]:
        checked_limit(limit)
        async with self._units.begin(scope.tenant_id) as unit:
            last = None if before is None else await unit.runs.get(scope, before)
            return await unit.runs.page(scope, session_id=session_id, statuses=statuses, limit=limit, before=last)

    async def invocations(self, scope: Scope, run_id: UUID) -> list[Invocation]:
        async with self._units.begin(scope.tenant_id) as unit:
            await unit.runs.get(scope, run_id)
            return await unit.invocations.of_run(run_id)

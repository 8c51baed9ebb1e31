"""What owners may read of runs, in memory."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from wakeful.domain.invocations import Invocation
from wakeful.domain.runs import Run
from wakeful.domain.scopes import Scope
from wakeful.domain.states import RunStatus
from wakeful.persistence.memory.codec import copy_invocation, copy_run
from wakeful.persistence.memory.edge import owned
from wakeful.persistence.memory.records import Records
from wakeful.persistence.sessions import checked_limit

__all__ = ["MemoryRunReader"]


class MemoryRunReader:
    """See `wakeful.domain.ports.sessions`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get(self, scope: Scope, run_id: UUID) -> Run:
        with self._records.unit():
            return copy_run(owned(self._records, scope, run_id))

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
        with self._records.unit():
            cursor = None if before is None else _place(owned(self._records, scope, before))
            found = [
                run
                for run in self._records.runs.values()
                if run.scope == scope
                and session_id in (None, run.ref.session_id)
                and (not statuses or run.status in statuses)
                and (cursor is None or _place(run) < cursor)
            ]
            return [copy_run(run) for run in sorted(found, key=_place, reverse=True)[:limit]]

    async def invocations(self, scope: Scope, run_id: UUID) -> list[Invocation]:
        with self._records.unit():
            run = owned(self._records, scope, run_id)
            return [copy_invocation(call) for call in self._records.calls(run.ref)]


def _place(run: Run) -> tuple[datetime, UUID]:
    return run.created_at, run.ref.run_id

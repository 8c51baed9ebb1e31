"""ChildSweeps on PostgreSQL: results that a parent has not got, and children that nobody waits for."""

from contextlib import suppress

from wakeful.domain import edges
from wakeful.domain.content import CallResult
from wakeful.domain.errors import NotFound
from wakeful.domain.events.envelope import MAINTENANCE
from wakeful.domain.ports.sweeps import UndeliveredChild
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef
from wakeful.persistence.acting import lock, write
from wakeful.persistence.candidates import ORPHANS, UNDELIVERED
from wakeful.persistence.control import call_away, deliver, mark_delivered
from wakeful.persistence.unit_of_work import AcrossTenants, Unit, Units

__all__ = ["PostgresChildSweeps"]

_NOBODY_WAITS = "the run that started it has ended or was cancelled"


class PostgresChildSweeps:
    """See `wakeful.domain.ports.sweeps`. No transaction spans two sessions: the child is read, then the parent is
    told, then the child is marked; doing any of it again changes nothing."""

    def __init__(self, units: Units, across: AcrossTenants) -> None:
        self._units, self._across = units, across

    async def undelivered(self, limit: int) -> list[UndeliveredChild]:
        async with self._across.begin() as session:
            found = await session.execute(UNDELIVERED, {"limit": limit})
            return [
                UndeliveredChild(
                    child=RunRef(row.tenant_id, row.session_id, row.id),
                    parent=RunRef(row.tenant_id, row.parent_session_id, row.parent_run_id),
                    call=row.parent_invocation_id,
                )
                for row in found
            ]

    async def deliver_child(self, child: UndeliveredChild) -> bool:
        result = await self._result(child.child)
        if result is None:
            return False
        # The parent is gone, or its call is: there is nobody left to tell.
        with suppress(NotFound):
            await deliver(self._units, child.parent, child.call, result, MAINTENANCE)
        # By the candidate as well: a call that never learnt its child's id must not make the sweep come back.
        await mark_delivered(self._units, child.child)
        return True

    async def orphans(self, limit: int) -> list[RunRef]:
        async with self._across.begin() as session:
            found = await session.execute(ORPHANS, {"limit": limit})
            return [RunRef(row.tenant_id, row.session_id, row.id) for row in found]

    async def cancel_orphan(self, child: RunRef) -> bool:
        async with self._units.begin(child.tenant_id) as unit:
            try:
                locked = await lock(unit, child)
            except NotFound:
                return False
            if not await _orphaned(unit, locked.run):
                return False
            edge = edges.cancel(locked, MAINTENANCE, _NOBODY_WAITS)
            await write(unit, locked.run, edge)
        await call_away(self._units, locked.run, edge)
        return edge.applied

    async def _result(self, child: RunRef) -> CallResult | None:
        """What an ended child has to say; None when it is gone, has not ended, or was delivered."""
        async with self._units.begin(child.tenant_id) as unit:
            run = await unit.runs.find(child.run_id)
            if run is None or not run.status.terminal or run.result_delivered_at is not None:
                return None
            return edges.child_result(run, await unit.events.final_reply(child))


async def _orphaned(unit: Unit, child: Run) -> bool:
    """Whether its parent is gone, has ended or was asked to: none of them is ever taken back, so no lock is needed."""
    if child.parent is None:
        return False
    parent = await unit.runs.find(child.parent.run_id)
    return parent is None or parent.status.terminal or parent.cancel_requested_at is not None

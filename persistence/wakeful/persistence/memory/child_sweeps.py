"""Child sweeps in memory: results to parents, and the end of children whose parents are gone."""

from datetime import UTC, datetime

from wakeful.domain import edges
from wakeful.domain.content import Content
from wakeful.domain.events.envelope import MAINTENANCE
from wakeful.domain.events.turns import AssistantMessageCreated
from wakeful.domain.ports.sweeps import UndeliveredChild
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef
from wakeful.persistence.memory.codec import load_event
from wakeful.persistence.memory.edge import locked, take
from wakeful.persistence.memory.records import Records, run_key
from wakeful.persistence.memory.run_control import give_child_result, mark_delivered

__all__ = ["MemoryChildSweeps"]

_NOBODY_WAITS = "the run that started it has ended or was cancelled"
_NEVER = datetime.max.replace(tzinfo=UTC)


class MemoryChildSweeps:
    """See `wakeful.domain.ports.sweeps`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def undelivered(self, limit: int) -> list[UndeliveredChild]:
        with self._records.unit():
            found = [
                (run.finished_at or _NEVER, UndeliveredChild(run.ref, run.parent, run.parent_invocation_id))
                for run in self._records.current_runs()
                if run.status.terminal and run.parent is not None and run.parent_invocation_id is not None
            ]
            return [child for _, child in sorted(found, key=lambda ended: ended[0])[:limit]]

    async def deliver_child(self, child: UndeliveredChild) -> bool:
        with self._records.unit():
            run = self._records.runs.get(run_key(child.child))
            if run is None or not run.status.terminal or run.result_delivered_at is not None:
                return False
            parent = locked(self._records, child.parent)
            if parent is not None and any(call.id == child.call for call in parent.calls):
                result = edges.child_result(run, self._reply(run))
                give_child_result(self._records, parent, child.call, result, MAINTENANCE)
            mark_delivered(self._records, self._records.runs_at(run_key(run.ref)))
            return True

    def _reply(self, run: Run) -> Content:
        """The run's last assistant message; None when it ended without one."""
        for saved in reversed(self._records.log(run.ref.session)):
            if saved.run_id == run.ref.run_id and saved.type == AssistantMessageCreated.TYPE:
                payload = load_event(run.ref.session, saved).payload
                return payload.content if isinstance(payload, AssistantMessageCreated) else None
        return None

    async def orphans(self, limit: int) -> list[RunRef]:
        with self._records.unit():
            return [run.ref for run in self._records.current_runs() if self._orphaned(run)][:limit]

    async def cancel_orphan(self, child: RunRef) -> bool:
        with self._records.unit():
            seen = locked(self._records, child)
            if seen is None or not self._orphaned(seen.run):
                return False
            return take(self._records, seen, edges.cancel(seen, MAINTENANCE, _NOBODY_WAITS)).applied

    def _orphaned(self, run: Run) -> bool:
        """Live, not asked to cancel yet, and its parent will not want the result."""
        if run.parent is None or run.status.terminal or run.cancel_requested_at is not None:
            return False
        parent = self._records.runs.get(run_key(run.parent))
        return parent is None or parent.status.terminal or parent.cancel_requested_at is not None

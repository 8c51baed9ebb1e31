"""What people and other runs do to a run, in memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from wakeful.domain import edges
from wakeful.domain.content import CallResult
from wakeful.domain.edges import Edge, Locked
from wakeful.domain.errors import NotFound
from wakeful.domain.events import Actor, Event
from wakeful.domain.ids import result_event_id
from wakeful.domain.invocations import Invocation
from wakeful.domain.ports.run_control import Controlled
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef, Scope
from wakeful.persistence.memory.edge import event_of, locked, owned, take
from wakeful.persistence.memory.records import Records

__all__ = ["MemoryRunControl", "give_child_result", "mark_delivered"]

_RUNTIME = Actor("runtime")


class MemoryRunControl:
    """See `wakeful.domain.ports.run_control`; what each action does is decided by `wakeful.domain.edges`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def cancel(self, scope: Scope, run_id: UUID, *, reason: str | None = None) -> Controlled:
        edges.checked_answer(reason)
        return self._act(scope, run_id, lambda seen, actor: edges.cancel(seen, actor, reason))

    async def answer(
        self, scope: Scope, run_id: UUID, call: UUID, answer: Any, *, event_id: UUID | None = None
    ) -> Controlled:
        value = edges.checked_answer(answer)
        return self._act(
            scope,
            run_id,
            lambda seen, actor: edges.answer(
                seen, call, value, actor, earlier=self._event(seen, result_event_id(call)), client_event_id=event_id
            ),
        )

    async def approve(
        self, scope: Scope, run_id: UUID, call: UUID, *, note: str | None = None, event_id: UUID | None = None
    ) -> Controlled:
        edges.checked_answer(note)
        return self._act(
            scope,
            run_id,
            lambda seen, actor: edges.approve(
                seen,
                call,
                actor,
                note=note,
                earlier=self._event(seen, edges.approved_event_id(call)),
                client_event_id=event_id,
            ),
        )

    async def deny(
        self, scope: Scope, run_id: UUID, call: UUID, *, note: str | None = None, event_id: UUID | None = None
    ) -> Controlled:
        edges.checked_answer(note)
        return self._act(
            scope,
            run_id,
            lambda seen, actor: edges.deny(
                seen,
                call,
                actor,
                note=note,
                earlier=self._event(seen, result_event_id(call)),
                client_event_id=event_id,
            ),
        )

    async def resolve(
        self,
        scope: Scope,
        run_id: UUID,
        call: UUID,
        *,
        happened: bool,
        note: str | None = None,
        event_id: UUID | None = None,
    ) -> Controlled:
        edges.checked_answer(note)
        return self._act(
            scope,
            run_id,
            lambda seen, actor: edges.resolve(
                seen,
                call,
                actor,
                happened=happened,
                note=note,
                earlier=self._event(seen, edges.resolved_event_id(call)),
                client_event_id=event_id,
            ),
        )

    async def deliver(self, parent: RunRef, call: UUID, result: CallResult) -> Controlled:
        with self._records.unit():
            seen = locked(self._records, parent)
            if seen is None:
                raise NotFound("run", parent.run_id)
            return give_child_result(self._records, seen, call, result, _RUNTIME)

    def _act(self, scope: Scope, run_id: UUID, decide: Callable[[Locked, Actor], Edge]) -> Controlled:
        with self._records.unit():
            run = owned(self._records, scope, run_id)
            seen = Locked(run, self._records.calls(run.ref))
            return take(self._records, seen, decide(seen, Actor("user", str(scope.principal_id))))

    def _event(self, seen: Locked, event_id: UUID) -> Event | None:
        return event_of(self._records, seen.run.ref, event_id)


def give_child_result(records: Records, seen: Locked, call_id: UUID, result: CallResult, actor: Actor) -> Controlled:
    """The child's result for the parent's call, and the child marked as delivered, in one unit of work."""
    call = seen.call(call_id)
    controlled = take(records, seen, edges.deliver(seen, call_id, result, actor))
    child = _child_of(records, call)
    if child is not None:
        mark_delivered(records, child)
    return controlled


def _child_of(records: Records, call: Invocation) -> Run | None:
    return None if call.child_run_id is None else records.runs.get((call.run.tenant_id, call.child_run_id))


def mark_delivered(records: Records, child: Run) -> None:
    """Its parent has the result, or is not there to want it; only for a child that has ended, and once."""
    if child.status.terminal and child.result_delivered_at is None:
        records.put_run(replace(child, result_delivered_at=records.clock()))

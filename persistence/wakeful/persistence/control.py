"""RunControl on PostgreSQL: each action is one unit of work by `wakeful.persistence.acting`."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from wakeful.domain import edges
from wakeful.domain.content import CallResult
from wakeful.domain.edges import Edge, Locked, approved_event_id, checked_answer, resolved_event_id
from wakeful.domain.errors import NotFound
from wakeful.domain.events import Actor, Event
from wakeful.domain.ids import result_event_id
from wakeful.domain.ports.run_control import Controlled
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef, Scope
from wakeful.persistence.acting import lock, write
from wakeful.persistence.presence import call_worker
from wakeful.persistence.unit_of_work import Unit, Units

__all__ = ["PostgresRunControl", "call_away", "deliver", "mark_delivered"]

_RUNTIME = Actor("runtime")

Answering = Callable[[Locked, Event | None], Edge]


class PostgresRunControl:
    """See `wakeful.domain.ports.run_control`."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def cancel(self, scope: Scope, run_id: UUID, *, reason: str | None = None) -> Controlled:
        checked_answer(reason)
        async with self._units.begin(scope.tenant_id) as unit:
            run = await _owned(unit, scope, run_id)
            locked = await lock(unit, run)
            edge = edges.cancel(locked, _user(scope), reason)
            await write(unit, locked.run, edge)
        await call_away(self._units, locked.run, edge)
        return Controlled(run, edge.status, edge.applied)

    async def answer(
        self, scope: Scope, run_id: UUID, call: UUID, answer: Any, *, event_id: UUID | None = None
    ) -> Controlled:
        checked_answer(answer)
        decide = partial(edges.answer, call_id=call, value=answer, actor=_user(scope), client_event_id=event_id)
        return await self._act(scope, run_id, call, result_event_id(call), _with_earlier(decide))

    async def approve(
        self, scope: Scope, run_id: UUID, call: UUID, *, note: str | None = None, event_id: UUID | None = None
    ) -> Controlled:
        checked_answer(note)
        decide = partial(edges.approve, call_id=call, actor=_user(scope), note=note, client_event_id=event_id)
        return await self._act(scope, run_id, call, approved_event_id(call), _with_earlier(decide))

    async def deny(
        self, scope: Scope, run_id: UUID, call: UUID, *, note: str | None = None, event_id: UUID | None = None
    ) -> Controlled:
        checked_answer(note)
        decide = partial(edges.deny, call_id=call, actor=_user(scope), note=note, client_event_id=event_id)
        return await self._act(scope, run_id, call, result_event_id(call), _with_earlier(decide))

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
        checked_answer(note)
        decide = partial(
            edges.resolve,
            call_id=call,
            actor=_user(scope),
            happened=happened,
            note=note,
            client_event_id=event_id,
        )
        return await self._act(scope, run_id, call, resolved_event_id(call), _with_earlier(decide))

    async def deliver(self, parent: RunRef, call: UUID, result: CallResult) -> Controlled:
        return await deliver(self._units, parent, call, result, _RUNTIME)

    async def _act(self, scope: Scope, run_id: UUID, call: UUID, earlier_id: UUID, decide: Answering) -> Controlled:
        """Act on one call; what was said of it before is read under the locks as well."""
        async with self._units.begin(scope.tenant_id) as unit:
            run = await _owned(unit, scope, run_id)
            locked = await lock(unit, run, call)
            edge = decide(locked, await unit.events.by_id(run.session_id, earlier_id))
            await write(unit, locked.run, edge)
        return Controlled(run, edge.status, edge.applied)


async def call_away(units: Units, run: Run, edge: Edge) -> None:
    """Hint to the worker that executes the run, once it was asked to end it."""
    if edge.cancel_requested and run.lease_owner is not None:
        await call_worker(units, run.ref.tenant_id, run.lease_owner)


async def deliver(units: Units, parent: RunRef, call: UUID, result: CallResult, actor: Actor) -> Controlled:
    """Give the call its child's result, then mark the child: two transactions, because none spans two sessions.

    After a crash between them the child is delivered again, which changes nothing, and then marked.
    """
    async with units.begin(parent.tenant_id) as unit:
        locked = await lock(unit, parent, call)
        edge = edges.deliver(locked, call, result, actor)
        await write(unit, locked.run, edge)
        child_run, child_session = locked.call(call).child_run_id, locked.call(call).child_session_id
    if child_run is not None and child_session is not None:
        await mark_delivered(units, RunRef(parent.tenant_id, child_session, child_run))
    return Controlled(parent, edge.status, edge.applied)


async def mark_delivered(units: Units, child: RunRef) -> bool:
    """Stamp an ended child as delivered; False when it was already, has not ended, or is gone."""
    async with units.begin(child.tenant_id) as unit:
        try:
            await unit.sessions.lock(child.session_id)
            await unit.runs.lock(child)
        except NotFound:
            return False
        return await unit.runs.mark_delivered(child.run_id)


async def _owned(unit: Unit, scope: Scope, run_id: UUID) -> RunRef:
    """Where the run is: its session and owner never change, so this may be read before the locks."""
    return (await unit.runs.get(scope, run_id)).ref


def _with_earlier(decide: Callable[..., Edge]) -> Answering:
    return lambda locked, earlier: decide(locked, earlier=earlier)


def _user(scope: Scope) -> Actor:
    return Actor("user", str(scope.principal_id))

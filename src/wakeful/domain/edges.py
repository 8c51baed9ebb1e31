"""Which edge an actor without a lease takes, and what it writes: pure decisions over what was read under the locks.

The caller holds the locks on session, run and calls (in this order), passes what it read then, and writes the
`Edge` it gets back in the same transaction. Deciding on anything read before the locks is the race this excludes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from wakeful.domain.canonical import canonical_json
from wakeful.domain.closing import OPEN_CALLS, closing, result_event
from wakeful.domain.content import ArtifactRef, CallResult, Content, Failure
from wakeful.domain.errors import AlreadyAnswered, Conflict, InvalidPayload, NotFound, RunEnded
from wakeful.domain.events import Actor, Event, NewEvent
from wakeful.domain.events.runs import RequeueReason, RunCancelled, RunCancelRequested, RunRequeued, RunWaiting
from wakeful.domain.events.turns import CallApproved, CallEnded, CallResolved
from wakeful.domain.ids import derived_id
from wakeful.domain.invocations import Invocation, InvocationChange
from wakeful.domain.payloads import check
from wakeful.domain.runs import Run
from wakeful.domain.states import AWAITING, WAITING, InvocationStatus, RunStatus, waiting_status

__all__ = [
    "MAX_ANSWER_BYTES",
    "Edge",
    "Locked",
    "answer",
    "approve",
    "approved_event_id",
    "cancel",
    "checked_answer",
    "child_result",
    "deliver",
    "deny",
    "resolve",
    "resolved_event_id",
    "settle",
]

MAX_ANSWER_BYTES = 262_144
"""An answer, a note or a reason: what a person says is kept inline."""


@dataclass(frozen=True, slots=True)
class Locked:
    """What was read under the locks: the run, its open calls, and the call acted upon in whatever state it is."""

    run: Run
    calls: Sequence[Invocation]

    def call(self, call: UUID) -> Invocation:
        """Raises NotFound for a call that is not this run's."""
        for candidate in self.calls:
            if candidate.id == call:
                return candidate
        raise NotFound("call", call)


@dataclass(frozen=True, slots=True)
class Edge:
    """What to write in one transaction. `status` is the run's afterwards; without events nothing is written.

    A run that leaves RUNNING gives its lease back; a terminal one is stamped as finished.
    """

    status: RunStatus
    events: tuple[NewEvent, ...] = ()
    changes: tuple[InvocationChange, ...] = ()
    failure: Failure | None = None
    cancel_requested: bool = False
    """Stamp `cancel_requested_at`."""
    crash: dict[str, Any] | None = None
    """Appended to `attempt_failures`; counts one lease expiration and makes the run suspect."""
    delay: timedelta | None = None
    """With QUEUED: `scheduled_for` becomes now plus this. None leaves it as it is."""
    resolved: UUID | None = None
    """Stamp this call's `resolved_at`."""

    @property
    def applied(self) -> bool:
        return bool(self.events)


def approved_event_id(call: UUID) -> UUID:
    """The id of a call's one approval."""
    return derived_id("approved", call)


def resolved_event_id(call: UUID) -> UUID:
    """The id of an uncertain call's one resolution."""
    return derived_id("resolved", call)


def checked_answer(value: Any) -> Any:
    """`value`, if it can be kept; before any lock is taken. Raises InvalidPayload."""
    size = len(canonical_json(check(value)).encode())
    if size > MAX_ANSWER_BYTES:
        raise InvalidPayload(f"{size} bytes are more than the {MAX_ANSWER_BYTES} an answer may have")
    return value


def cancel(locked: Locked, actor: Actor, reason: str | None) -> Edge:
    """At once without a holder, asked for with one, nothing for a run that has ended or was asked already."""
    run = locked.run
    if run.status.terminal or (run.status is RunStatus.RUNNING and run.cancel_requested_at is not None):
        return Edge(run.status)
    if run.status is RunStatus.RUNNING:
        return Edge(run.status, (_said(run, RunCancelRequested(reason=reason), actor),), cancel_requested=True)
    events, changes = closing(locked.calls, actor, "run_cancelled", "the run was cancelled", trace_id=run.trace_id)
    return Edge(RunStatus.CANCELLED, (*events, _said(run, RunCancelled(reason=reason), actor)), changes)


def answer(
    locked: Locked, call_id: UUID, value: Any, actor: Actor, *, earlier: Event | None, client_event_id: UUID | None
) -> Edge:
    """The answer to an open question. `earlier` is the call's result event, if there is one.

    Raises NotFound, RunEnded, AlreadyAnswered, Conflict (no open question).
    """
    call = locked.call(call_id)
    if _same(earlier, client_event_id):
        return Edge(locked.run.status)
    _must_await(locked.run, call, InvocationStatus.AWAITING_INPUT, "an answer", earlier)
    result = CallResult(status=InvocationStatus.COMPLETED, code="answered", data=value)
    return settle(locked, call, result, actor, "input", client_event_id=client_event_id)


def approve(
    locked: Locked,
    call_id: UUID,
    actor: Actor,
    *,
    note: str | None,
    earlier: Event | None,
    client_event_id: UUID | None,
) -> Edge:
    """The call becomes REQUESTED. `earlier` is its approval event, if there is one. Raises as `answer` does."""
    call = locked.call(call_id)
    if _same(earlier, client_event_id):
        return Edge(locked.run.status)
    _must_await(locked.run, call, InvocationStatus.AWAITING_APPROVAL, "approval", earlier)
    payload = CallApproved(**_place(call), note=note, client_event_id=client_event_id)
    event = NewEvent(payload, actor, call.run.run_id, approved_event_id(call.id), locked.run.trace_id)
    change = InvocationChange(
        call.id,
        InvocationStatus.REQUESTED,
        frozenset({InvocationStatus.AWAITING_APPROVAL}),
        approved_by=actor.id,
    )
    return _going_on(locked, event, change, actor, "approval")


def deny(
    locked: Locked,
    call_id: UUID,
    actor: Actor,
    *,
    note: str | None,
    earlier: Event | None,
    client_event_id: UUID | None,
) -> Edge:
    """DENIED is the call's one result. `earlier` is its result event, if there is one. Raises as `answer` does."""
    call = locked.call(call_id)
    if _same(earlier, client_event_id):
        return Edge(locked.run.status)
    _must_await(locked.run, call, InvocationStatus.AWAITING_APPROVAL, "approval", earlier)
    result = CallResult(status=InvocationStatus.DENIED, code="denied", message=note or "a person did not allow it")
    return settle(locked, call, result, actor, "approval", client_event_id=client_event_id)


def resolve(
    locked: Locked,
    call_id: UUID,
    actor: Actor,
    *,
    happened: bool,
    note: str | None,
    earlier: Event | None,
    client_event_id: UUID | None,
) -> Edge:
    """A note on an UNCERTAIN call, once. `earlier` is its resolution, if there is one. Raises NotFound, Conflict."""
    call = locked.call(call_id)
    if _same(earlier, client_event_id):
        return Edge(locked.run.status)
    if earlier is not None:
        raise Conflict(f"call {call.id} was resolved already")
    if call.status is not InvocationStatus.UNCERTAIN:
        raise Conflict(f"call {call.id} is {call.status}, not UNCERTAIN: there is nothing to resolve")
    payload = CallResolved(**_place(call), happened=happened, note=note, client_event_id=client_event_id)
    event = NewEvent(payload, actor, call.run.run_id, resolved_event_id(call.id), locked.run.trace_id)
    return Edge(locked.run.status, (event,), resolved=call.id)


def deliver(locked: Locked, call_id: UUID, result: CallResult, actor: Actor) -> Edge:
    """A child's result for the call that started it, in whatever open state that call is. Nothing if it has one."""
    call = locked.call(call_id)
    if locked.run.status.terminal or call.status.terminal:
        return Edge(locked.run.status)
    return settle(locked, call, result, actor, "child", expected=OPEN_CALLS)


def child_result(child: Run, reply: Content) -> CallResult:
    """What the parent's call is told of a child that has ended; `reply` is its last assistant message's content."""
    match child.status:
        case RunStatus.COMPLETED:
            if isinstance(reply, ArtifactRef):
                # The bytes belong to the child's session, and go with it.
                note = f"the beginning of {reply.size_bytes} bytes, all of them in the child's own session"
                return CallResult(
                    status=InvocationStatus.COMPLETED, code="completed_truncated", message=note, data=reply.preview
                )
            data: Any = reply
            return CallResult(status=InvocationStatus.COMPLETED, code="completed", data=data)
        case RunStatus.FAILED:
            failure = child.failure or Failure(code="failed", message="the child run failed")
            return CallResult(status=InvocationStatus.FAILED, code=failure.code, message=failure.message)
        case RunStatus.CANCELLED:
            return CallResult(status=InvocationStatus.CANCELLED, code="cancelled", message="the child was cancelled")
        case _:
            raise Conflict(f"run {child.ref.run_id} is {child.status}: it has no result yet")


def settle(
    locked: Locked,
    call: Invocation,
    result: CallResult,
    actor: Actor,
    reason: RequeueReason,
    *,
    client_event_id: UUID | None = None,
    expected: frozenset[InvocationStatus] | None = None,
) -> Edge:
    """Give an open call its one result, and let a run that waits for nothing any more go on."""
    event = result_event(call, result, actor, client_event_id=client_event_id, trace_id=locked.run.trace_id)
    change = InvocationChange(call.id, result.status, expected or frozenset({call.status}))
    return _going_on(locked, event, change, actor, reason)


def _going_on(locked: Locked, event: NewEvent, change: InvocationChange, actor: Actor, reason: RequeueReason) -> Edge:
    """In WAITING_* the status is computed again; a queued or running run keeps its own."""
    run = locked.run
    if run.status not in WAITING:
        return Edge(run.status, (event,), (change,))
    awaited = [c for c in locked.calls if c.status in AWAITING and c.id != change.invocation_id]
    status = waiting_status({c.status for c in awaited})
    if status is None:
        payload = RunRequeued(reason=reason, epoch=run.lease_epoch, lease_expirations=run.lease_expirations)
        return Edge(RunStatus.QUEUED, (event, _said(run, payload, actor)), (change,))
    if status is run.status:
        return Edge(status, (event,), (change,))
    waiting = RunWaiting(status=status, calls=[c.id for c in awaited])
    return Edge(status, (event, _said(run, waiting, actor)), (change,))


def _must_await(run: Run, call: Invocation, status: InvocationStatus, what: str, earlier: Event | None) -> None:
    if run.status.terminal:
        raise RunEnded(run.ref.run_id, run.status)
    if call.status.terminal or (earlier is not None and call.status is not status):
        raise AlreadyAnswered(call.id)
    if call.status is not status:
        raise Conflict(f"call {call.id} ({call.tool}) is {call.status}: it does not wait for {what}")


def _same(earlier: Event | None, client_event_id: UUID | None) -> bool:
    """Whether the first success was this very request."""
    if earlier is None or client_event_id is None:
        return False
    payload = earlier.payload
    known = payload.client_event_id if isinstance(payload, CallEnded | CallApproved | CallResolved) else None
    return known == client_event_id


def _place(call: Invocation) -> dict[str, Any]:
    return {"invocation_id": call.id, "step": call.step, "position": call.position, "tool": call.tool}


def _said(run: Run, payload: Any, actor: Actor) -> NewEvent:
    return NewEvent(payload, actor, run_id=run.ref.run_id, trace_id=run.trace_id)

"""How calls get their one result: the event of a result, and the results of everything open when a run ends."""

from collections.abc import Sequence
from uuid import UUID

from wakeful.domain.content import CallResult
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.turns import (
    CallCancelled,
    CallCompleted,
    CallDenied,
    CallEnded,
    CallFailed,
    CallRefused,
    CallUncertain,
)
from wakeful.domain.ids import result_event_id
from wakeful.domain.invocations import Invocation, InvocationChange
from wakeful.domain.states import TERMINAL_CALLS, IdempotencyClass, InvocationStatus

__all__ = ["OPEN_CALLS", "closing", "closing_status", "result_event"]

OPEN_CALLS = frozenset(InvocationStatus) - TERMINAL_CALLS
"""Every status of a call that has no result yet."""

_NOT_STARTED = OPEN_CALLS - {InvocationStatus.RUNNING}
_UNKNOWABLE = frozenset({IdempotencyClass.NON_IDEMPOTENT, IdempotencyClass.CONDITIONALLY_IDEMPOTENT})
_ENDED: dict[InvocationStatus, type[CallEnded]] = {
    InvocationStatus.COMPLETED: CallCompleted,
    InvocationStatus.FAILED: CallFailed,
    InvocationStatus.REFUSED: CallRefused,
    InvocationStatus.DENIED: CallDenied,
    InvocationStatus.CANCELLED: CallCancelled,
    InvocationStatus.UNCERTAIN: CallUncertain,
}


def result_event(
    call: Invocation,
    result: CallResult,
    actor: Actor,
    *,
    client_event_id: UUID | None = None,
    repaired: int = 0,
    trace_id: str | None = None,
) -> NewEvent:
    """The one result event of a call. Its id is derived from the call, so writing another is refused."""
    payload = _ENDED[result.status](
        invocation_id=call.id,
        step=call.step,
        position=call.position,
        tool=call.tool,
        result=result,
        repaired=repaired,
        client_event_id=client_event_id,
    )
    return NewEvent(payload, actor, run_id=call.run.run_id, event_id=result_event_id(call.id), trace_id=trace_id)


def closing(
    invocations: Sequence[Invocation], actor: Actor, code: str, message: str, *, trace_id: str | None = None
) -> tuple[tuple[NewEvent, ...], tuple[InvocationChange, ...]]:
    """What a run's end adds so that each unanswered call has exactly one result, in (step, position) order.

    UNCERTAIN for a call that was started and could have had an effect that repeating would double, CANCELLED for
    every other; calls that have a result are passed over. Belongs into the transaction of the terminal edge.
    """
    still_open = sorted(
        (call for call in invocations if not call.status.terminal), key=lambda c: (c.step, c.position, c.origin)
    )
    events = tuple(
        result_event(call, _closing_result(call, code, message), actor, trace_id=trace_id) for call in still_open
    )
    changes = tuple(
        InvocationChange(call.id, closing_status(call), frozenset({call.status}) if _running(call) else _NOT_STARTED)
        for call in still_open
    )
    return events, changes


def closing_status(call: Invocation) -> InvocationStatus:
    """How an unanswered call ends when its run does."""
    if _running(call) and call.idempotency_class in _UNKNOWABLE:
        return InvocationStatus.UNCERTAIN
    return InvocationStatus.CANCELLED


def _running(call: Invocation) -> bool:
    return call.status is InvocationStatus.RUNNING


def _closing_result(call: Invocation, code: str, message: str) -> CallResult:
    status = closing_status(call)
    if status is InvocationStatus.UNCERTAIN:
        message = f"{message}: the call had been started, and nobody can know whether it took effect"
    return CallResult(status=status, code=code, message=message)

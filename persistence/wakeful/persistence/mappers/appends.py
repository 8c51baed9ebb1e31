"""Appends: domain to the parameters of the append function, and its row back to the domain.

Everything is serialized here, before a connection is taken: no lock is held while JSON is written. Numbers travel
as text without a type, so that one prepared statement serves every magnitude.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from wakeful.domain.appends import Append, Appended, RunChange
from wakeful.domain.checkpoints import NewCheckpoint
from wakeful.domain.errors import InvalidInput, InvalidPayload
from wakeful.domain.events import NewEvent
from wakeful.domain.invocations import InvocationChange, NewInvocation

__all__ = ["append_parameters", "appended_of", "json_text"]

_SILENT = frozenset({"memory.decayed", "memory.retired"})
_NO_CHANGE: tuple[None, ...] = (None,) * 7
_NUL = b"\\u0000"


def json_text(value: Any) -> str:
    """JSON text that jsonb takes. Raises InvalidPayload for lone surrogates, NUL, and what is no JSON."""
    try:
        data = to_json(value)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError) as error:
        raise InvalidPayload("text that is not Unicode, or a value that is no JSON") from error
    if _NUL in data and _holds_nul(data):
        raise InvalidPayload("text contains NUL: remove it")
    return data.decode()


def append_parameters(append: Append) -> tuple[Any, ...]:
    """In the order of wakeful.append_v1. Raises InvalidInput, InvalidPayload."""
    _check(append)
    first, *others = append.events
    lease = append.lease
    return (
        append.session.tenant_id,
        append.session.session_id,
        any(_active(event) for event in append.events),
        first.event_id,
        first.run_id,
        first.payload.TYPE,
        str(first.payload.VERSION),
        first.actor.type,
        first.actor.id,
        json_text(first.payload),
        first.trace_id,
        json_text([_event(event) for event in others]) if others else None,
        *((lease.run.run_id, lease.owner, str(lease.epoch)) if lease else (None, None, None)),
        *(_change(append.run) if append.run else _NO_CHANGE),
        json_text([_proposal(new) for new in append.proposals]) if append.proposals else None,
        json_text([_transition(change) for change in append.changes]) if append.changes else None,
        *_checkpoint(append.checkpoint),
    )


def appended_of(row: Sequence[Any]) -> Appended:
    """The row that wakeful.append_v1 returns."""
    first, last, at, cancel_requested = row
    return Appended(first, last, at, bool(cancel_requested))


def _check(append: Append) -> None:
    if not append.events:
        raise InvalidInput("an append needs at least one event: its ids are what makes doing it again safe")
    if append.lease is None:
        if append.run or append.proposals or append.changes or append.checkpoint:
            raise InvalidInput("an append without a lease may hold events only: name the lease that allows the change")
    elif append.lease.run.session != append.session:
        raise InvalidInput(f"the lease's run is not in session {append.session.session_id}: append to its own session")


def _active(event: NewEvent) -> bool:
    """Whether the event is activity: forgetting by the memory itself is not."""
    return not (event.payload.TYPE in _SILENT and event.actor.type == "memory" and event.run_id is None)


def _event(event: NewEvent) -> Mapping[str, Any]:
    return {
        "event_id": event.event_id,
        "run_id": event.run_id,
        "event_type": event.payload.TYPE,
        "version": event.payload.VERSION,
        "actor_type": event.actor.type,
        "actor_id": event.actor.id,
        "payload": event.payload,
        "trace_id": event.trace_id,
    }


def _change(change: RunChange) -> tuple[Any, ...]:
    return (
        change.status.value if change.status else None,
        True if change.started else None,
        None if change.step is None else str(change.step),
        None if change.tool_call_count is None else str(change.tool_call_count),
        str(change.add_tokens) if change.add_tokens else None,
        None if change.failure is None else json_text(change.failure),
        change.delay,
    )


def _proposal(new: NewInvocation) -> Mapping[str, Any]:
    return {
        "id": new.id,
        "origin": new.origin,
        "step": new.step,
        "position": new.position,
        "tool": new.tool,
        "arguments_hash": new.arguments_hash,
        "provider_call_id": new.provider_call_id,
        "idempotency_class": new.idempotency_class.value,
        "idempotency_key": new.idempotency_key,
        "status": new.status.value,
        "expires_in": new.expires_in,
        "child_run_id": new.child_run_id,
        "child_session_id": new.child_session_id,
    }


def _transition(change: InvocationChange) -> Mapping[str, Any]:
    return {
        "id": change.invocation_id,
        "status": change.status.value,
        "expected": [status.value for status in change.expected],
        "epoch": change.epoch,
        "context_updates": change.context_updates,
        "approved_by": change.approved_by,
    }


def _checkpoint(new: NewCheckpoint | None) -> tuple[str | None, str | None, str | None]:
    if new is None:
        return None, None, None
    through = None if new.last_event_sequence is None else str(new.last_event_sequence)
    return new.trigger, through, json_text(new.state)


def _holds_nul(data: bytes) -> bool:
    """Whether one of the escapes really is NUL, and not a backslash in front of the text u0000."""
    start = data.find(_NUL)
    while start >= 0:
        backslashes = 0
        while start - backslashes > 0 and data[start - backslashes - 1] == 0x5C:
            backslashes += 1
        if backslashes % 2 == 0:
            return True
        start = data.find(_NUL, start + 1)
    return False

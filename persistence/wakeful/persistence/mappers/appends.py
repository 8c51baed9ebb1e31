"""Appends: domain to the parameters of the append function, and its row back to the domain.

Everything is serialized here, before a connection is taken: no lock is held while JSON is written. Parameters are
text, whose types the function declares; what it answers is binary, which no setting of the server changes the shape of.
"""

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_json

from wakeful.domain.appends import Append, Appended, RunChange
from wakeful.domain.checkpoints import NewCheckpoint, changes, whole
from wakeful.domain.errors import InvalidInput, InvalidPayload, WakefulError
from wakeful.domain.events import NewEvent
from wakeful.domain.invocations import InvocationChange, NewInvocation

__all__ = ["append_parameters", "appended_of", "json_text"]

_NO_CHANGE: tuple[None, ...] = (None,) * 7
_NUL = b"\\u0000"
_BIGINT = struct.Struct("!q")
_INTEGER = struct.Struct("!i")
_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def json_text(value: Any) -> str:
    """JSON text that jsonb takes. Raises InvalidPayload for lone surrogates, NUL, and what is no JSON."""
    return json_bytes(value).decode()


def json_bytes(value: Any) -> bytes:
    """The same, as it travels."""
    try:
        data = to_json(value)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError) as error:
        raise InvalidPayload("text that is not Unicode, or a value that is no JSON") from error
    if _NUL in data and _holds_nul(data):
        raise InvalidPayload("text contains NUL: remove it")
    return data


def append_parameters(append: Append) -> tuple[bytes | None, ...]:
    """In the order of wakeful.append_v1. Raises InvalidInput, InvalidPayload."""
    _check(append)
    first, *others = append.events
    lease = append.lease
    return (
        _uuid(append.session.tenant_id),
        _uuid(append.session.session_id),
        b"t" if any(event.is_activity for event in append.events) else b"f",
        _uuid(first.event_id),
        _uuid(first.run_id),
        _text(first.payload.TYPE),
        _number(first.payload.VERSION),
        _text(first.actor.type),
        _text(first.actor.id),
        json_bytes(first.payload),
        _text(first.trace_id),
        json_bytes([_event(event) for event in others]) if others else None,
        *((_uuid(lease.run.run_id), _uuid(lease.owner), _number(lease.epoch)) if lease else (None, None, None)),
        *(_change(append.run) if append.run else _NO_CHANGE),
        json_bytes([_proposal(new) for new in append.proposals]) if append.proposals else None,
        json_bytes([_transition(change) for change in append.changes]) if append.changes else None,
        *_checkpoint(append.checkpoint),
    )


def appended_of(row: Sequence[bytes | None]) -> Appended:
    """The row that wakeful.append_v1 returns, in binary format."""
    first, last, at, cancel_requested, checkpoint = row
    if first is None or last is None or at is None:
        raise WakefulError("the append function answered without a sequence")
    since_epoch = timedelta(microseconds=_BIGINT.unpack(at)[0])
    return Appended(
        _BIGINT.unpack(first)[0],
        _BIGINT.unpack(last)[0],
        _POSTGRES_EPOCH + since_epoch,
        cancel_requested == b"\x01",
        checkpoint=None if checkpoint is None else _INTEGER.unpack(checkpoint)[0],
    )


def _uuid(value: UUID | None) -> bytes | None:
    return None if value is None else b"%032x" % value.int


def _number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value


def _text(value: str | None) -> bytes | None:
    """Raises InvalidPayload for what PostgreSQL keeps in no text."""
    if value is None:
        return None
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidPayload("text that is not Unicode") from error
    # The protocol ends text at NUL, so the rest would be lost without a word.
    if b"\0" in data:
        raise InvalidPayload("text contains NUL: remove it")
    return data


def _interval(value: timedelta | None) -> bytes | None:
    return None if value is None else b"%d microseconds" % (value // timedelta(microseconds=1))


def _check(append: Append) -> None:
    if not append.events:
        raise InvalidInput("an append needs at least one event: its ids are what makes doing it again safe")
    if append.lease is None:
        if append.run or append.proposals or append.changes or append.checkpoint:
            raise InvalidInput("an append without a lease may hold events only: name the lease that allows the change")
    elif append.lease.run.session != append.session:
        raise InvalidInput(f"the lease's run is not in session {append.session.session_id}: append to its own session")


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


def _change(change: RunChange) -> tuple[bytes | None, ...]:
    return (
        _text(change.status.value) if change.status else None,
        b"t" if change.started else None,
        _number(change.step),
        _number(change.tool_call_count),
        _number(change.add_tokens) if change.add_tokens else None,
        None if change.failure is None else json_bytes(change.failure),
        _interval(change.delay),
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


def _checkpoint(new: NewCheckpoint | None) -> tuple[bytes | None, ...]:
    if new is None:
        return (None,) * 5
    return (
        _text(new.trigger),
        _number(new.last_event_sequence),
        json_bytes(whole(new.state)),
        *((_number(new.base.number), json_bytes(changes(new.base.state, new.state))) if new.base else (None, None)),
    )


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

"""In and out of the store: JSON text for payloads, copies for everything mutable.

A value that came out of here is what a database would have given back, and changing it changes nothing stored.
"""

import json
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from typing import Any

from wakeful.domain.checkpoints import Base, Checkpoint, Link, NewCheckpoint, changes, latest_of, whole
from wakeful.domain.events import Event, NewEvent, decode
from wakeful.domain.invocations import Invocation
from wakeful.domain.payloads import check
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef, SessionRef
from wakeful.domain.sessions import Session
from wakeful.persistence.memory.saved import SavedCheckpoint, SavedEvent

__all__ = [
    "copy_invocation",
    "copy_run",
    "copy_session",
    "json_text",
    "load_checkpoint",
    "load_event",
    "plain",
    "save_checkpoint",
    "save_event",
]


def json_text(value: Any) -> str:
    """The JSON text of a value. Raises InvalidPayload naming the place that JSON or jsonb cannot hold."""
    return json.dumps(check(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """`value` as it comes back from storage. Raises InvalidPayload."""
    return json.loads(json_text(value))


def save_event(event: NewEvent, sequence: int, at: datetime, payload: str) -> SavedEvent:
    return SavedEvent(
        sequence=sequence,
        event_id=event.event_id,
        run_id=event.run_id,
        type=event.type,
        version=event.payload.VERSION,
        actor=event.actor,
        payload=payload,
        trace_id=event.trace_id,
        created_at=at,
    )


def load_event(session: SessionRef, saved: SavedEvent) -> Event:
    return Event(
        tenant_id=session.tenant_id,
        session_id=session.session_id,
        sequence=saved.sequence,
        event_id=saved.event_id,
        run_id=saved.run_id,
        version=saved.version,
        actor=saved.actor,
        payload=decode(saved.type, saved.version, json.loads(saved.payload), event=saved.event_id),
        trace_id=saved.trace_id,
        created_at=saved.created_at,
    )


def save_checkpoint(
    new: NewCheckpoint, *, number: int, base: Base | None, epoch: int, last_sequence: int, at: datetime
) -> SavedCheckpoint:
    """`last_sequence` is what a checkpoint that names no watermark was taken at."""
    watermark = last_sequence if new.last_event_sequence is None else new.last_event_sequence
    state = json_text(whole(new.state) if base is None else changes(base.state, new.state))
    return SavedCheckpoint(number, epoch, base.number if base else None, new.trigger, watermark, state, at)


def load_checkpoint(run: RunRef, saved: Iterable[SavedCheckpoint]) -> Checkpoint | None:
    """The newest of a run's checkpoints whose chain reaches a full one."""
    return latest_of(
        Link(
            run_id=run.run_id,
            number=each.number,
            epoch=each.epoch,
            base_number=each.base_number,
            trigger=each.trigger,
            last_event_sequence=each.last_event_sequence,
            state=json.loads(each.state),
            created_at=each.created_at,
        )
        for each in saved
    )


def copy_run(run: Run) -> Run:
    return replace(
        run,
        metadata=deepcopy(run.metadata),
        attempt_failures=deepcopy(run.attempt_failures),
        failure=None if run.failure is None else run.failure.model_copy(deep=True),
    )


def copy_invocation(invocation: Invocation) -> Invocation:
    return replace(invocation, context_updates=deepcopy(invocation.context_updates))


def copy_session(session: Session) -> Session:
    return replace(session, metadata=deepcopy(session.metadata))

"""Writing events: allocation in the session, recognition of what is there already, activity."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from wakeful.domain.appends import Appended
from wakeful.domain.errors import SessionGone, WakefulError
from wakeful.domain.events import NewEvent
from wakeful.domain.scopes import SessionRef
from wakeful.domain.sessions import Session
from wakeful.persistence.memory.codec import json_text, save_event
from wakeful.persistence.memory.records import Records
from wakeful.persistence.memory.saved import SavedEvent

__all__ = ["Encoded", "encode", "insert", "now_in", "saved_event", "session_of", "stands_already"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """An event with its payload's text, made before the lock is taken."""

    event: NewEvent
    payload: str


def encode(events: Sequence[NewEvent]) -> list[Encoded]:
    """Raises InvalidPayload; nothing is locked or written yet."""
    return [Encoded(event, json_text(event.payload.model_dump(mode="json"))) for event in events]


def session_of(records: Records, ref: SessionRef) -> Session:
    """Raises SessionGone."""
    session = records.sessions.get(ref)
    if session is None:
        raise SessionGone(ref.session_id)
    return session


def now_in(records: Records, session: SessionRef) -> datetime:
    """The time of a write into a session: never before its last event's."""
    events = records.log(session)
    now = records.clock()
    return max(now, events[-1].created_at) if events else now


def stands_already(records: Records, ref: SessionRef, events: Sequence[NewEvent]) -> Appended | None:
    """The first success, when these very events are in the log.

    A result's id is derived from its call, so it may stand there because somebody else gave the result: that is
    no repetition, and the guards refuse it.
    """
    found = [saved_event(records, ref, event.event_id) for event in events]
    saved = [known for known in found if known is not None]
    if not saved or len(saved) < len(found):
        return None
    if any((old.type, old.actor) != (new.type, new.actor) for old, new in zip(saved, events, strict=True)):
        return None
    sequences = [event.sequence for event in saved]
    return Appended(min(sequences), max(sequences), saved[-1].created_at, cancel_requested=False, repeated=True)


def saved_event(records: Records, ref: SessionRef, event_id: UUID) -> SavedEvent | None:
    sequence = records.event_sequences.get((ref, event_id))
    return None if sequence is None else records.log(ref)[sequence - 1]


def insert(records: Records, ref: SessionRef, events: Sequence[Encoded], at: datetime) -> Appended:
    """Write events at consecutive new sequences and move the session's activity forward, never back."""
    session = session_of(records, ref)
    first = session.last_sequence + 1
    if any((ref, encoded.event.event_id) in records.event_sequences for encoded in events):
        # Every guard let it pass, so no race explains it: ids are chosen per append, and this one mixes two.
        raise WakefulError(f"some of the append's event ids stand in session {ref.session_id} already")
    for offset, encoded in enumerate(events):
        records.add_event(ref, save_event(encoded.event, first + offset, at, encoded.payload))
    last = session.last_sequence + len(events)
    updated_at = max(session.updated_at, at) if any(e.event.is_activity for e in events) else session.updated_at
    records.sessions.put(ref, replace(session, last_sequence=last, updated_at=updated_at))
    return Appended(first, last, at, cancel_requested=False)

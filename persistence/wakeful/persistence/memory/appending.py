"""Writing events: allocation in the session, recognition of what is there already, activity."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from wakeful.domain.appends import Appended
from wakeful.domain.errors import SessionGone, WakefulError
from wakeful.domain.events import NewEvent
from wakeful.domain.scopes import SessionRef
from wakeful.domain.sessions import Session
from wakeful.persistence.memory.codec import json_text, save_event
from wakeful.persistence.memory.records import Records

__all__ = ["Encoded", "encode", "insert", "now_in", "session_of", "stands_already"]

_SILENT = frozenset({"memory.decayed", "memory.retired"})


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
    """The first success, when these very events are in the log; None when none of them is.

    Some but not all of them is a defect of the writer, whose ids are chosen per append.
    """
    found = [records.event_sequences.get((ref, event.event_id)) for event in events]
    known = [sequence for sequence in found if sequence is not None]
    if not known:
        return None
    if len(known) < len(found):
        raise WakefulError(f"{len(known)} of the append's {len(found)} event ids stand in session {ref.session_id}")
    log = records.log(ref)
    at = next(event.created_at for event in reversed(log) if event.sequence == max(known))
    return Appended(min(known), max(known), at, cancel_requested=False, repeated=True)


def insert(records: Records, ref: SessionRef, events: Sequence[Encoded], at: datetime) -> Appended:
    """Write events at consecutive new sequences and move the session's activity forward, never back."""
    session = session_of(records, ref)
    first = session.last_sequence + 1
    for offset, encoded in enumerate(events):
        records.add_event(ref, save_event(encoded.event, first + offset, at, encoded.payload))
    last = session.last_sequence + len(events)
    updated_at = max(session.updated_at, at) if any(_active(e.event) for e in events) else session.updated_at
    records.sessions.put(ref, replace(session, last_sequence=last, updated_at=updated_at))
    return Appended(first, last, at, cancel_requested=False)


def _active(event: NewEvent) -> bool:
    """Whether the event is activity: forgetting by the memory itself is not."""
    return not (event.type in _SILENT and event.actor.type == "memory" and event.run_id is None)

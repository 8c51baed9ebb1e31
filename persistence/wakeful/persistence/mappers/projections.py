"""Projection states: row to domain, and a move to the parameters of its function. A row is a mapping by column name."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from wakeful.domain.events import Event
from wakeful.domain.payloads import describe
from wakeful.domain.ports.projections import Batch, Move, Stop, StoredState
from wakeful.domain.projections import Derived, Document, Projection, StateScope
from wakeful.persistence.mappers.appends import json_text
from wakeful.persistence.mappers.events import event_of

__all__ = ["batch_of", "document_of", "move_parameters", "stop_of", "stored_of"]

Row = Mapping[str, Any]


def document_of(row: Row) -> Document:
    return Document(row["key"], row["body"], row["position"], row["session_id"])


def stop_of(row: Row | None) -> Stop | None:
    if row is None or row["stopped_at"] is None:
        return None
    return Stop(row["stopped_session_id"], row["stopped_sequence"], row["stopped_reason"], row["stopped_at"])


def batch_of(
    projection: Projection,
    generation: int | None,
    state: Row | None,
    marks: Sequence[Row],
    rows: Sequence[Row],
    limit: int,
) -> Batch:
    """What was read in one snapshot; an event that cannot be decoded ends it."""
    events: list[Event] = []
    unreadable: tuple[UUID, int, str] | None = None
    for row in rows:
        try:
            events.append(event_of(row))
        except Exception as error:
            unreadable = (row["session_id"], row["sequence"], describe(error))
            break
    more = unreadable is None and len(rows) >= limit
    through = {mark["id"]: mark["watermark_seq"] or 0 if more else mark["last_sequence"] for mark in marks}
    if more:
        through.update((event.session_id, event.sequence) for event in events)
    last = state["last_created_at"] if state else None
    return Batch(
        generation=generation if generation is not None else (state["generation"] if state else 0),
        version=_version(projection, state, marks),
        revision=state["revision"] if state else 0,
        last_place=(last, state["last_session_id"], state["last_sequence"]) if state and last is not None else None,
        stopped=state is not None and state["stopped_at"] is not None,
        events=events,
        marks={mark["id"]: mark["watermark_seq"] for mark in marks},
        through=through,
        more=more,
        unreadable=unreadable,
    )


def stored_of(projection: Projection, state: Row | None, marks: Sequence[Row], rows: Sequence[Row]) -> StoredState:
    return StoredState(
        version=_version(projection, state, marks),
        generation=state["generation"] if state else 0,
        revision=state["revision"] if state else 0,
        marks={mark["id"]: mark["watermark_seq"] or 0 for mark in marks},
        documents=[document_of(row) for row in rows],
        stop=stop_of(state),
    )


def _version(projection: Projection, state: Row | None, marks: Sequence[Row]) -> int | None:
    """The builder: of a session's state it stands with the watermark, of a principal's with the revision."""
    if projection.scope is StateScope.PRINCIPAL:
        return state["builder_version"] if state else None
    return marks[0]["builder_version"] if marks else None


def move_parameters(projection: Projection, move: Move) -> tuple[Any, ...]:
    """In the order of wakeful.move_projection_v1. Raises InvalidPayload."""
    changed = [document for document in move.documents.values() if document is not None]
    gone = sorted(key for key, document in move.documents.items() if document is None)
    return (
        move.state.tenant_id,
        move.state.scope,
        projection.name,
        move.generation,
        projection.version,
        move.session_id,
        move.mark,
        move.through,
        None if move.last_place is None else move.revision,
        *(move.last_place or (None, None, None)),
        json_text([_document(document) for document in changed]) if changed else None,
        gone or None,
        json_text([_derived(derived) for derived in move.derived]) if move.derived else None,
        move.clears_stop,
    )


def _document(document: Document) -> Row:
    return {
        "key": document.key,
        "position": document.position,
        "session_id": document.session_id,
        "body": document.body,
    }


def _derived(derived: Derived) -> Row:
    event = derived.event
    return {
        "key": derived.key,
        "event_id": event.event_id,
        "run_id": event.run_id,
        "event_type": event.payload.TYPE,
        "version": event.payload.VERSION,
        "actor_type": event.actor.type,
        "actor_id": event.actor.id,
        "payload": event.payload,
        "active": event.is_activity,
    }

"""Projections: read models folded from the log, and the pure half of advancing one.

A projection says which events it wants, which documents of its state each of them touches, and what they become.
Everything else (watermarks, transactions, concurrency, rebuilds, what happens when its code raises) is the engine's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final
from uuid import UUID

from wakeful.domain.canonical import sha256_hex
from wakeful.domain.errors import ConfigurationError, ProjectionDefect
from wakeful.domain.events import Actor, Event, NewEvent
from wakeful.domain.events.envelope import MAINTENANCE, Payload
from wakeful.domain.ids import derived_id
from wakeful.domain.payloads import check, describe

__all__ = [
    "EVERY_DOCUMENT",
    "Derived",
    "Document",
    "EveryDocument",
    "Folded",
    "Projection",
    "State",
    "StateRef",
    "StateScope",
    "by_name",
    "fold",
    "place",
]


class StateScope(StrEnum):
    """What one state belongs to. There is no cursor across sessions: each session has its own watermark."""

    SESSION = "session"
    """One state per session, folded in sequence order."""
    PRINCIPAL = "principal"
    """One state per principal, folded over its sessions in (`created_at`, session, sequence) order."""


@dataclass(frozen=True, slots=True)
class StateRef:
    """One state of some projection: a session's, or a principal's."""

    tenant_id: UUID
    scope: UUID


@dataclass(frozen=True, slots=True)
class Document:
    """A part of a state: JSON under a key. `position` orders the documents of a state, for reading a range."""

    key: str
    body: Any
    position: int = 0
    session_id: UUID | None = None
    """Whose deletion takes the document along."""


@dataclass(frozen=True, slots=True)
class Derived:
    """An event that a projection derives. `key` identifies the derivation: it is appended only while no event of
    the tenant has that key, so deriving it again changes nothing."""

    key: str
    session_id: UUID
    event: NewEvent


class EveryDocument:
    """Asks for the whole state."""


EVERY_DOCUMENT: Final = EveryDocument()
"""What `Projection.keys` returns when an event may touch any document; right for small states only."""


class Projection:
    """Base of every projection. Instances hold no state of their own; everything below is read-only.

    `apply` must be pure: the same events give the same documents in every process, for ever. So no clock, no random
    value, no iteration over a set, no setting. What it raises stops the one state that it was applied to.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """The builder's version. Raised by whoever changes what `apply` does: states of an older one are built anew."""
    scope: ClassVar[StateScope] = StateScope.SESSION
    types: ClassVar[frozenset[str] | None] = None
    """The event types that are applied; None for every type. Others are never decoded."""
    actor: ClassVar[Actor] = MAINTENANCE
    """Who appends what it derives."""

    def keys(self, event: Event) -> Iterable[str] | EveryDocument:
        """The keys of the documents that `apply` may look at or change for this event."""
        return ("",)

    def apply(self, event: Event, state: "State") -> None:
        """Change the state by one event."""
        raise NotImplementedError


@dataclass(slots=True)
class State:
    """What `Projection.apply` sees: the documents it asked for, as of the event before."""

    projection: Projection
    event: Event
    _documents: dict[str, Document]
    _allowed: frozenset[str] | None
    _changed: dict[str, Document | None] = field(default_factory=dict)
    _derived: list[Derived] = field(default_factory=list)

    def get(self, key: str = "") -> Any:
        """The document's body, None when there is none. It is the caller's own: only `put` changes the state."""
        found = self._find(key)
        return None if found is None else _copy(found.body)

    def position(self, key: str = "") -> int:
        """The document's position, 0 when there is none."""
        found = self._find(key)
        return 0 if found is None else found.position

    def items(self) -> list[tuple[str, Any]]:
        """Every document that was asked for and exists, by key."""
        keys = {**self._documents, **self._changed}
        return [(key, self.get(key)) for key in sorted(keys) if self._visible(key) and self.get(key) is not None]

    def put(self, body: Any, key: str = "", *, position: int = 0) -> None:
        """Write a document. A later `put` under the same key replaces all of it."""
        self._check(key)
        self._changed[key] = Document(key, _copy(check(body)), position, self.event.session_id)

    def delete(self, key: str = "") -> None:
        """A missing document counts as deleted."""
        self._check(key)
        self._changed[key] = None

    def derive(self, rule: str, payload: Payload, *, sources: Sequence[UUID] = (), run_id: UUID | None = None) -> UUID:
        """Append an event to the session of the current event, unless the same derivation was appended before.

        The derivation is identified by the ids of its sources (the current event's alone when none are named), the
        rule and the builder's version. The event's id follows from that; it is returned.
        """
        identity = [sorted(str(source) for source in sources or (self.event.event_id,)), rule, self.projection.version]
        key = sha256_hex([self.projection.name, *identity])
        check(payload.model_dump(mode="json"))
        event = NewEvent(payload, self.projection.actor, run_id=run_id, event_id=derived_id("derived", key))
        self._derived.append(Derived(key, self.event.session_id, event))
        return event.event_id

    def _find(self, key: str) -> Document | None:
        self._check(key)
        return self._changed[key] if key in self._changed else self._documents.get(key)

    def _check(self, key: str) -> None:
        if not self._visible(key):
            name = type(self.projection).__name__
            raise ProjectionDefect(f"{name}.apply touched document {key!r}, which {name}.keys did not name")

    def _visible(self, key: str) -> bool:
        return self._allowed is None or key in self._allowed


@dataclass(frozen=True, slots=True)
class Folded:
    """What events made of a state. `failed` is the first event that could not be applied, with the reason."""

    documents: Mapping[str, Document | None]
    """Changed documents by key, None for deleted ones."""
    derived: Sequence[Derived]
    applied: int
    failed: tuple[Event, str] | None = None


def fold(projection: Projection, documents: Mapping[str, Document], events: Sequence[Event]) -> Folded:
    """Apply events to documents, each completely or not at all, up to the first that raises. Pure."""
    seen: dict[str, Document] = dict(documents)
    changed: dict[str, Document | None] = {}
    derived: list[Derived] = []
    for number, event in enumerate(events):
        try:
            keys = projection.keys(event)
            allowed = None if isinstance(keys, EveryDocument) else frozenset(keys)
            state = State(projection, event, seen, allowed)
            projection.apply(event, state)
        except Exception as error:
            return Folded(changed, derived, number, (event, describe(error)))
        for key, document in state._changed.items():
            changed[key] = document
            if document is None:
                seen.pop(key, None)
            else:
                seen[key] = document
        derived += state._derived
    return Folded(changed, derived, len(events))


def place(event: Event) -> tuple[datetime, UUID, int]:
    """Where an event stands among all of a principal's events."""
    return event.created_at, event.session_id, event.sequence


def by_name(projections: Iterable[Projection]) -> dict[str, Projection]:
    """By name. Raises ConfigurationError for one without a name and for two of one name."""
    found: dict[str, Projection] = {}
    for projection in projections:
        name = getattr(projection, "name", "")
        if not name or name in found:
            what = "has no name" if not name else f"is named {name!r} like another one"
            raise ConfigurationError(f"projection {type(projection).__name__} {what}")
        found[name] = projection
    return found


def _copy(value: Any) -> Any:
    """A copy of JSON-like data, so that nobody changes a state by changing what was read from it."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value

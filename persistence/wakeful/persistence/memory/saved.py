"""Rows that have no type of their own in the domain."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from wakeful.domain.events import Actor
from wakeful.domain.ports.projections import Stop
from wakeful.domain.scopes import RunRef, SessionRef

__all__ = ["ArtifactRecord", "KeyRecord", "SavedCheckpoint", "SavedEvent", "SavedState"]


@dataclass(frozen=True, slots=True)
class SavedEvent:
    """A committed event; the payload is kept as the JSON text the log would hold."""

    sequence: int
    event_id: UUID
    run_id: UUID | None
    type: str
    version: int
    actor: Actor
    payload: str
    trace_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint; its state, or what changed since its base, is kept as JSON text."""

    number: int
    epoch: int
    base_number: int | None
    trigger: str
    last_event_sequence: int
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A submit key: the request it stands for, and the run it started."""

    request_hash: str
    run: RunRef
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A row that knows of bytes; the bytes lie under `key` and belong to this artifact alone."""

    session: SessionRef
    key: str
    sha256: str
    media_type: str
    origin: str
    run_id: UUID | None


@dataclass(frozen=True, slots=True)
class SavedState:
    """A generation of a projection's state, without its documents and watermarks."""

    generation: int
    serving: bool = False
    revision: int = 0
    version: int | None = None
    last_place: tuple[datetime, UUID, int] | None = None
    stop: Stop | None = None

"""The immutable envelope around a payload: before it is appended, and as the log holds it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from wakeful.domain.ids import new_id

__all__ = ["Actor", "Event", "NewEvent", "Payload"]


class Payload(BaseModel):
    """A payload model; `TYPE` and `VERSION` name what it is in the log. Unknown keys are ignored on reading."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    HISTORY: ClassVar[bool] = False
    """Whether it is an item of session history (what a run's context is made of)."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who says so: `user`, `worker`, `runtime`, `maintenance`, `model`, `memory` or `platform`."""

    type: str
    id: str | None = None


MAINTENANCE = Actor("maintenance")
_FORGETTING = frozenset({"memory.decayed", "memory.retired"})


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. Its id is chosen by the writer, so that writing it again is recognized."""

    payload: Payload
    actor: Actor
    run_id: UUID | None = None
    event_id: UUID = field(default_factory=new_id)
    trace_id: str | None = None

    @property
    def type(self) -> str:
        return self.payload.TYPE

    @property
    def is_activity(self) -> bool:
        """Whether it moves its session forward in lists: what the memory forgets by itself, outside a run, does not."""
        return not (self.type in _FORGETTING and self.actor.type == "memory" and self.run_id is None)


@dataclass(frozen=True, slots=True)
class Event:
    """A committed event. `sequence` orders it within its session (gaps are legal); `created_at` is database time."""

    tenant_id: UUID
    session_id: UUID
    sequence: int
    event_id: UUID
    run_id: UUID | None
    version: int
    actor: Actor
    payload: Payload
    trace_id: str | None
    created_at: datetime

    @property
    def type(self) -> str:
        return self.payload.TYPE

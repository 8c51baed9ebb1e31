"""Port: what the projection engine keeps and reads. Every method is one transaction.

A state has generations, of which one is served: a rebuild makes the next one beside it and swaps. State and watermark
change in one transaction, whose first act is to compare the watermark (and a principal's revision) with what was
read: whoever comes second changes nothing and is told so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from wakeful.domain.events import Event
from wakeful.domain.projections import Derived, Document, Projection, StateRef
from wakeful.domain.scopes import SessionRef

__all__ = ["Batch", "Behind", "Lag", "Move", "Page", "Projections", "Stop", "StoredState"]

Place = tuple[datetime, UUID, int]
"""`created_at`, session, sequence: the order in which a principal's events are folded."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A session with events that some projections have not seen, by the names of these."""

    session: SessionRef
    principal_id: UUID
    projections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of sessions, and who of them is behind."""

    behind: Sequence[Behind]
    last: SessionRef | None
    """The last session looked at; None at the end of all sessions."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Unseen events of one state, in fold order, with everything that was known of the state in that snapshot."""

    generation: int
    version: int | None
    """The builder that made this generation; None when there is nothing of it yet."""
    revision: int
    last_place: Place | None
    """Of a principal's state: the last event folded."""
    stopped: bool
    events: Sequence[Event]
    marks: Mapping[UUID, int | None]
    """Watermarks of the sessions with anything unseen, by session; None where there is none yet."""
    through: Mapping[UUID, int]
    """How far each session's watermark may be set once `events` are folded."""
    more: bool = False
    """Whether anything is unseen behind these events."""
    unreadable: tuple[UUID, int, str] | None = None
    """The first event that could not be decoded, which `events` end before: its session, sequence and the reason."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a state: everything that changes with one session's watermark."""

    state: StateRef
    generation: int
    session_id: UUID
    mark: int | None
    """The watermark as it was read."""
    through: int
    revision: int = 0
    last_place: Place | None = None
    """With a principal's events: the last one folded. The revision is compared and raised with it."""
    documents: Mapping[str, Document | None] = field(default_factory=dict)
    derived: Sequence[Derived] = ()
    clears_stop: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a state does not move: the event it stands before."""

    session_id: UUID
    sequence: int
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a session's events are ahead of a projection's watermark."""

    projection: str
    state: StateRef
    session_id: UUID
    watermark: int
    last_sequence: int
    seconds: float
    """The age of the oldest unseen event."""
    stop: Stop | None = None

    @property
    def sequences(self) -> int:
        return self.last_sequence - self.watermark


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state as it is served. `version` None and no documents: there is none yet."""

    version: int | None
    generation: int
    revision: int
    marks: Mapping[UUID, int]
    documents: Sequence[Document]
    stop: Stop | None = None


class Projections(Protocol):
    async def behind(
        self, projections: Sequence[Projection], *, after: SessionRef | None, limit: int, retry_stopped: timedelta
    ) -> Page:
        """Look at the next `limit` sessions of all tenants, in the order of (tenant, id). States that stopped less
        than `retry_stopped` ago are left out."""
        ...

    async def behind_lately(
        self, projections: Sequence[Projection], *, within: timedelta, limit: int, retry_stopped: timedelta
    ) -> list[Behind]:
        """Of the sessions with a run that is executed now, or ended `within` this time: those that are behind. Finds
        most of what grows without looking at what does not."""
        ...

    async def read(
        self, projection: Projection, state: StateRef, *, generation: int | None = None, limit: int = 500
    ) -> Batch:
        """At most `limit` unseen events of a generation, the served one by default, in one snapshot."""
        ...

    async def documents(
        self, projection: Projection, state: StateRef, read: Batch, *, keys: Collection[str] | None
    ) -> Mapping[str, Document] | None:
        """Documents by key, every one for `keys` None, as they stand at the place of `read`. None when the state has
        moved since: what stands there now may be of a generation that was begun again."""
        ...

    async def move(self, projection: Projection, move: Move) -> bool:
        """Write documents, derived events and watermark, all or nothing. False, and nothing changed, when the
        watermark or the revision is not what was read any more, or the session is gone."""
        ...

    async def stop(self, projection: Projection, move: Move, sequence: int, reason: str) -> bool:
        """Say why the state does not move past `move.mark`. False when it has moved meanwhile."""
        ...

    async def stored(self, projection: Projection, state: StateRef) -> StoredState:
        """The state as it is served, documents by position, in one snapshot."""
        ...

    async def begin_generation(self, projection: Projection, state: StateRef, *, anew: bool = True) -> int:
        """The number of the generation after the served one; what there is of it is dropped when `anew`."""
        ...

    async def swap(self, projection: Projection, state: StateRef, *, generation: int) -> bool:
        """Serve this generation from now on, in one transaction, and drop the others. False when the generation
        before it is not the served one any more. Again: True, unchanged."""
        ...

    async def lag(
        self, projections: Sequence[Projection], *, tenant_id: UUID | None = None, limit: int = 100
    ) -> list[Lag]:
        """Who is behind or stopped, over all tenants or in one, the most sequences first."""
        ...

    async def states(
        self, projection: Projection, *, tenant_id: UUID, after: UUID | None = None, limit: int = 100
    ) -> list[StateRef]:
        """Every state there could be in a tenant (its sessions, or its principals), in order of their ids."""
        ...

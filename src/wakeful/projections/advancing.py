"""Advancing one state by what its projection has not seen.

Computing comes first, then one transaction per session writes documents, derived events and watermark; whoever finds
the watermark moved has computed in vain and changes nothing. So any number of processes may advance the same state.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from uuid import UUID

import structlog

from wakeful.domain.events import Event
from wakeful.domain.ports.projections import Batch, Move, Projections
from wakeful.domain.projections import Document, EveryDocument, Projection, StateRef, StateScope, fold, place

__all__ = ["BATCH", "Advanced", "Outcome", "advance", "catch_up"]

_log = structlog.get_logger(__name__)

BATCH = 500
"""Events read at once: what bounds the memory and the length of a transaction."""


class Outcome(StrEnum):
    """What one step of a state came to."""

    CAUGHT_UP = "caught_up"
    MORE = "more"
    """There is more to read."""
    OVERTAKEN = "overtaken"
    """Somebody else moved the state meanwhile; nothing was changed by this step."""
    STOPPED = "stopped"
    """An event cannot be applied; everything before it is."""
    OUTDATED = "outdated"
    """An older builder made the state: it has to be built anew."""
    AHEAD = "ahead"
    """A newer builder made the state; this code leaves it alone."""
    DISORDERED = "disordered"
    """A principal's events came in another order than they are folded in: the state has to be built anew."""


@dataclass(frozen=True, slots=True)
class Advanced:
    outcome: Outcome
    events: int = 0


async def advance(
    store: Projections,
    projection: Projection,
    state: StateRef,
    *,
    generation: int | None = None,
    batch: int = BATCH,
) -> Advanced:
    """Read, fold and write one batch of the served generation, or of the one named. Raises Unavailable,
    OutcomeUnknown (doing it again is right)."""
    read = await store.read(projection, state, generation=generation, limit=batch)
    if read.version is not None and read.version != projection.version:
        return Advanced(Outcome.OUTDATED if read.version < projection.version else Outcome.AHEAD)
    if _disordered(read):
        return Advanced(Outcome.DISORDERED)
    documents = await _documents(store, projection, state, read)
    if documents is None:
        return Advanced(Outcome.OVERTAKEN)
    step = _Step(store, projection, state, read, documents)
    outcome = await step.take()
    return Advanced(outcome, step.applied)


async def catch_up(
    store: Projections,
    projection: Projection,
    state: StateRef,
    *,
    generation: int | None = None,
    batch: int = BATCH,
    batches: int = 1000,
) -> Advanced:
    """Advance until there is nothing to do, at most `batches` times; overtaken steps are taken again."""
    events = 0
    advanced = Advanced(Outcome.MORE)
    for _ in range(batches):
        advanced = await advance(store, projection, state, generation=generation, batch=batch)
        events += advanced.events
        if advanced.outcome not in (Outcome.MORE, Outcome.OVERTAKEN):
            break
    return Advanced(advanced.outcome, events)


def _disordered(read: Batch) -> bool:
    return bool(read.events) and read.last_place is not None and place(read.events[0]) < read.last_place


async def _documents(
    store: Projections, projection: Projection, state: StateRef, read: Batch
) -> Mapping[str, Document] | None:
    if not read.events or read.version is None:
        return {}
    return await store.documents(projection, state, read, keys=_wanted(projection, read.events))


def _wanted(projection: Projection, events: Sequence[Event]) -> Collection[str] | None:
    keys: set[str] = set()
    for event in events:
        try:
            asked = projection.keys(event)
            if isinstance(asked, EveryDocument):
                return None
            keys.update(asked)
        except Exception:
            # Folding meets it again, stops there and says so.
            break
    return sorted(keys)


class _Step:
    """Folds a batch session by session, each in one transaction on the state that the one before has left."""

    def __init__(
        self,
        store: Projections,
        projection: Projection,
        state: StateRef,
        read: Batch,
        documents: Mapping[str, Document],
    ) -> None:
        self._store, self._projection, self._state, self._read = store, projection, state, read
        self._documents = dict(documents)
        self._marks = dict(read.marks)
        self._revision = read.revision
        self.applied = 0

    async def take(self) -> Outcome:
        runs = [(session, list(events)) for session, events in groupby(self._read.events, lambda e: e.session_id)]
        for session, events in runs:
            failed = await self._fold(session, events)
            if failed is not None:
                return failed
        if self._read.unreadable is not None:
            return await self._stop(*self._read.unreadable)
        for session in sorted(self._marks):
            if not await self._pass_over(session):
                return Outcome.OVERTAKEN
        return Outcome.MORE if self._read.more else Outcome.CAUGHT_UP

    async def _fold(self, session: UUID, events: Sequence[Event]) -> Outcome | None:
        """Apply one session's events; the outcome if that was the end of it."""
        folded = fold(self._projection, self._documents, events)
        if folded.applied:
            last = events[folded.applied - 1]
            move = self._move(
                session,
                last.sequence,
                documents=folded.documents,
                derived=folded.derived,
                last_place=place(last) if self._projection.scope is StateScope.PRINCIPAL else None,
                clears_stop=self._read.stopped,
            )
            if not await self._store.move(self._projection, move):
                return Outcome.OVERTAKEN
            self.applied += folded.applied
            self._adopt(move)
        if folded.failed is not None:
            event, reason = folded.failed
            return await self._stop(session, event.sequence, reason)
        return None

    async def _stop(self, session: UUID, sequence: int, reason: str) -> Outcome:
        """Everything before the event counts as seen; the reason is kept where operators look."""
        before = sequence - 1
        mark = self._marks.get(session)
        if mark is None or mark < before:
            move = self._move(session, before)
            if not await self._store.move(self._projection, move):
                return Outcome.OVERTAKEN
            self._adopt(move)
        if not await self._store.stop(self._projection, self._move(session, before), sequence, reason):
            return Outcome.OVERTAKEN
        _log.warning(
            "projection.stopped",
            projection=self._projection.name,
            session_id=str(session),
            sequence=sequence,
            reason=reason,
        )
        return Outcome.STOPPED

    async def _pass_over(self, session: UUID) -> bool:
        """Set the watermark past events that this projection does not want."""
        through = self._read.through.get(session, 0)
        mark = self._marks[session]
        if mark is not None and mark >= through:
            return True
        return await self._store.move(self._projection, self._move(session, through, clears_stop=self._read.stopped))

    def _move(self, session: UUID, through: int, **changes: object) -> Move:
        return Move(
            state=self._state,
            generation=self._read.generation,
            session_id=session,
            mark=self._marks.get(session),
            through=through,
            revision=self._revision,
            **changes,  # type: ignore[arg-type]
        )

    def _adopt(self, move: Move) -> None:
        self._marks[move.session_id] = move.through
        if move.last_place is not None:
            self._revision += 1
        for key, document in move.documents.items():
            if document is None:
                self._documents.pop(key, None)
            else:
                self._documents[key] = document

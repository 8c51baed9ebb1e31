"""The holder's pen: every append of one execution goes through here, one after another.

It keeps three promises. In-memory conversation always equals the log: what others wrote in between (answers,
approvals, cancels, child results) is read and adopted before the next decision. An append whose outcome is unknown
is redone with the same event ids until the database answers. And an append that began is finished, even when the
task that asked for it is cancelled.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

from wakeful.domain.appends import Append, Appended, RunChange
from wakeful.domain.checkpoints import NewCheckpoint
from wakeful.domain.errors import Fenced
from wakeful.domain.events import Event, NewEvent
from wakeful.domain.events.runs import RunCancelRequested
from wakeful.domain.events.turns import CallApproved, CallEnded
from wakeful.domain.history import Conversation
from wakeful.domain.invocations import InvocationChange, NewInvocation
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.states import InvocationStatus
from wakeful.runtime.chain import Chain
from wakeful.runtime.holding import Holding
from wakeful.runtime.patience import until_answered

__all__ = ["Entry", "Journal"]

_PAGE = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one append says; the journal adds session and lease."""

    events: tuple[NewEvent, ...]
    run: RunChange | None = None
    proposals: tuple[NewInvocation, ...] = ()
    changes: tuple[InvocationChange, ...] = ()
    checkpoint: NewCheckpoint | None = None


class Journal:
    """Appends under one lease. Not for use after Fenced."""

    def __init__(
        self,
        log: EventLog,
        holding: Holding,
        conversation: Conversation,
        *,
        last_sequence: int,
        longest_pause: timedelta,
        chain: Chain | None = None,
    ) -> None:
        self._log, self._holding, self._longest_pause = log, holding, longest_pause
        self._chain = chain or Chain()
        self._lock = asyncio.Lock()
        self._at: datetime | None = None
        self._at_monotonic = 0.0
        self.conversation = conversation
        self.calls: dict[UUID, InvocationStatus] = {}
        """The state of the run's calls as of the log: own appends and adopted events."""
        self.last_sequence = last_sequence

    @property
    def run_id(self) -> UUID:
        return self._holding.lease.run.run_id

    def database_now(self) -> datetime | None:
        """The database's clock as of the last append, carried on by the monotonic clock; None before the first."""
        if self._at is None:
            return None
        return self._at + timedelta(seconds=time.monotonic() - self._at_monotonic)

    async def append(self, build: Entry | Callable[[], Entry]) -> Appended:
        """Append one entry; a function is asked for it when its turn has come, with everything before adopted.

        Raises Fenced (nothing more may be written), Arrived, CancelAsked, AlreadyAnswered, CallMismatch.
        Cancelling the caller does not cancel the append.
        """
        return await asyncio.shield(asyncio.ensure_future(self._append(build)))

    async def catch_up(self) -> None:
        """Adopt everything the log holds by now."""
        async with self._lock:
            await self._adopt(through=None)

    async def settle(self) -> None:
        """Wait until no append is under way."""
        async with self._lock:
            return

    async def _append(self, build: Entry | Callable[[], Entry]) -> Appended:
        async with self._lock:
            entry = build() if callable(build) else build
            lease = self._holding.lease
            checkpoint = None if entry.checkpoint is None else self._chain.link(entry.checkpoint)
            append = Append(
                lease.run.session, entry.events, lease, entry.run, entry.proposals, entry.changes, checkpoint
            )
            try:
                appended = await self._until_answered(partial(self._log.append, append))
            except Fenced:
                self._holding.lost = True
                raise
            if checkpoint is not None:
                self._chain.written(checkpoint, appended.checkpoint)
            await self._take_in(entry, appended)
            return appended

    async def _take_in(self, entry: Entry, appended: Appended) -> None:
        self._at, self._at_monotonic = appended.at, time.monotonic()
        self._holding.progressed()
        if appended.cancel_requested:
            self._holding.cancel_requested = True
        if appended.first_sequence > self.last_sequence + 1:
            await self._adopt(through=appended.first_sequence - 1)
        for offset, new in enumerate(entry.events):
            self.conversation.apply(self._committed(new, appended.first_sequence + offset, appended.at))
        self.calls.update((proposal.id, proposal.status) for proposal in entry.proposals)
        self.calls.update((change.invocation_id, change.status) for change in entry.changes)
        self.last_sequence = max(self.last_sequence, appended.last_sequence)

    def _committed(self, new: NewEvent, sequence: int, at: datetime) -> Event:
        session = self._holding.lease.run.session
        return Event(
            tenant_id=session.tenant_id,
            session_id=session.session_id,
            sequence=sequence,
            event_id=new.event_id,
            run_id=new.run_id,
            version=new.payload.VERSION,
            actor=new.actor,
            payload=new.payload,
            trace_id=new.trace_id,
            created_at=at,
        )

    async def _adopt(self, *, through: int | None) -> None:
        session = self._holding.lease.run.session
        while through is None or self.last_sequence < through:
            after = self.last_sequence
            page = await self._until_answered(partial(self._log.read, session, after=after, limit=_PAGE))
            for event in page:
                if through is not None and event.sequence > through:
                    break
                self._adopt_event(event)
            if len(page) < _PAGE or (through is not None and page[-1].sequence > through):
                break
        if through is not None:
            self.last_sequence = max(self.last_sequence, through)

    def _adopt_event(self, event: Event) -> None:
        self.conversation.apply(event)
        self.last_sequence = max(self.last_sequence, event.sequence)
        if event.run_id != self.run_id:
            return
        match event.payload:
            case CallEnded() as ended:
                self.calls[ended.invocation_id] = ended.result.status
            case CallApproved() as approved:
                self.calls[approved.invocation_id] = InvocationStatus.REQUESTED
            case RunCancelRequested():
                self._holding.cancel_requested = True
            case _:
                pass

    async def _until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await until_answered(self._holding, self._longest_pause, attempt)

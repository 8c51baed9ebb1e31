"""The event log in memory."""

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import replace

from wakeful.domain.appends import Append, Appended, RunChange
from wakeful.domain.errors import InvalidInput
from wakeful.domain.events import Event
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.memory.appending import Encoded, encode, insert, now_in, session_of, stands_already
from wakeful.persistence.memory.codec import json_text, load_event, plain
from wakeful.persistence.memory.holding import add_checkpoint, change_calls, change_run, held, propose
from wakeful.persistence.memory.records import Records, run_key

__all__ = ["MemoryEventLog"]


class MemoryEventLog:
    """Appends and reads; see `wakeful.domain.ports.event_log` for what each guarantees."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def append(self, append: Append) -> Appended:
        append = _checked(append)
        events = encode(append.events)
        with self._records.unit():
            return self._append(append, events)

    def _append(self, append: Append, events: list[Encoded]) -> Appended:
        session_of(self._records, append.session)
        repeated = stands_already(self._records, append.session, append.events)
        if repeated is not None:
            return replace(repeated, cancel_requested=self._cancel_requested(append))
        if append.lease is None:
            return insert(self._records, append.session, events, now_in(self._records, append.session))
        return self._append_held(append, append.lease, events)

    def _append_held(self, append: Append, lease: Lease, events: list[Encoded]) -> Appended:
        """Calls before the run: what the run may become depends on what is still open. Events last, so that a
        second result is refused by its call's state and not by its id."""
        run = held(self._records, lease)
        at = now_in(self._records, append.session)
        propose(self._records, run.ref, append.proposals, at)
        change_calls(self._records, run.ref, append.changes, at)
        change_run(self._records, run, append.run or RunChange(), at)
        appended = insert(self._records, append.session, events, at)
        number = None
        if append.checkpoint is not None:
            number = add_checkpoint(self._records, run, append.checkpoint, appended.last_sequence, at)
        return replace(appended, cancel_requested=run.cancel_requested_at is not None, checkpoint=number)

    def _cancel_requested(self, append: Append) -> bool:
        run = None if append.lease is None else self._records.runs.get(run_key(append.lease.run))
        return run is not None and run.cancel_requested_at is not None

    async def read(
        self, session: SessionRef, *, after: int = 0, limit: int = 1000, types: Collection[str] | None = None
    ) -> list[Event]:
        with self._records.unit():
            log = self._records.log(session)
            start = bisect_right(log, after, key=lambda event: event.sequence)
            wanted = (event for event in log[start:] if types is None or event.type in types)
            saved = [event for event, _ in zip(wanted, range(limit), strict=False)]
        return [load_event(session, event) for event in saved]


def _checked(append: Append) -> Append:
    """Refuse what no lock is needed to refuse, and part with everything the caller may still change."""
    if not append.events:
        raise InvalidInput("an append holds at least one event: its id is what makes it safe to do again")
    if append.lease is None and (append.run or append.proposals or append.changes or append.checkpoint):
        raise InvalidInput("an append without a lease may hold events only: name the lease that allows the change")
    if append.lease is not None and append.lease.run.session != append.session:
        raise InvalidInput(f"the lease's run is not in session {append.session.session_id}: append to its own session")
    if append.checkpoint is not None:
        json_text(append.checkpoint.state.model_dump(mode="json"))
    changes = tuple(
        change if change.context_updates is None else replace(change, context_updates=plain(change.context_updates))
        for change in append.changes
    )
    return replace(append, changes=changes)

"""Port: the append-only event log of each session."""

from collections.abc import Collection
from typing import Protocol

from wakeful.domain.appends import Append, Appended
from wakeful.domain.events import Event
from wakeful.domain.scopes import SessionRef

__all__ = ["EventLog"]


class EventLog(Protocol):
    async def append(self, append: Append) -> Appended:
        """Append events and apply the state change they describe, all or nothing.

        Before: the session exists; with a lease, the run is RUNNING under its owner and epoch.
        After: the events stand at consecutive new sequences, the run, its calls and its checkpoint are changed.
        Errors: Fenced, Arrived, CancelAsked, AlreadyAnswered, CallMismatch, SessionGone, InvalidPayload;
        OutcomeUnknown and Unavailable when the database did not answer.
        Concurrency: serialized per session by its row lock, so commit order is sequence order. The same event
        ids again return the first success and change nothing.
        """
        ...

    async def read(
        self, session: SessionRef, *, after: int = 0, limit: int = 1000, types: Collection[str] | None = None
    ) -> list[Event]:
        """Committed events with a sequence greater than `after`, in order, at most `limit`; never waits for a gap.
        Unknown sessions read as empty."""
        ...

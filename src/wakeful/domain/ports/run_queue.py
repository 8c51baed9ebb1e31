"""Port: the run queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from wakeful.domain.checkpoints import Checkpoint
from wakeful.domain.events import Event
from wakeful.domain.invocations import Invocation
from wakeful.domain.runs import Claim, Lease, Run, Submission, Submitted
from wakeful.domain.states import PriorityClass

__all__ = ["DEFAULT_MAX_ATTEMPTS", "Execution", "RunQueue"]

DEFAULT_MAX_ATTEMPTS = 3
"""Lease expirations a run may suffer before it is FAILED."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Everything a holder needs to go on: read after the claim, calls before history, so history is never older."""

    run: Run
    session_metadata: Mapping[str, Any]
    checkpoint: Checkpoint | None
    invocations: Sequence[Invocation]
    history: Sequence[Event]
    """The session's conversation events (CONVERSATION_TYPES) in order."""
    last_sequence: int
    """The session's newest sequence as of the read, of whatever type."""


class RunQueue(Protocol):
    async def submit(self, submission: Submission) -> Submitted:
        """Queue a run: idempotency row, session lock, run, messages and run.queued in one transaction.

        Before: the session exists, is open, and has no active run. After: the run is QUEUED.
        Errors: SessionGone, SessionClosed, SessionBusy, IdempotencyConflict, InvalidPayload, NotFound (the session
        is another principal's). Nothing is left behind by any of them.
        Concurrency: one key gives one run, however many submit it at once; so does one run id.
        """
        ...

    async def claim(
        self,
        owner: UUID,
        *,
        capacity: Mapping[PriorityClass, int],
        agents: Sequence[str],
        lease: timedelta,
        suspects: int,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        now: datetime | None = None,
    ) -> list[Claim]:
        """Take due runs: at most `capacity[class]` of each class and `suspects` suspects in all.

        Before: QUEUED, due, an agent of `agents`, allowance left. After: RUNNING, owner, epoch + 1, attempts + 1.
        Order: class, then `due_at`. Concurrency: rows locked by others are skipped; no run is given twice.
        `now` replaces the database's clock in the comparison, for tests.
        """
        ...

    async def load(self, lease: Lease) -> Execution:
        """Read what the holder needs, in one round trip. Raises Fenced when the lease is not current any more."""
        ...

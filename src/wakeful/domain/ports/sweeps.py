"""Port: maintenance. Candidates are found without locks, across tenants, from `runs` and expiries alone; each is
then handled in a transaction of its own that locks in the one order and looks again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import RunStatus

__all__ = [
    "HOLDER_DEAD",
    "ChildSweeps",
    "ExpiredLease",
    "ExpiredWait",
    "HeldLease",
    "Housekeeping",
    "RunSweeps",
    "UndeliveredChild",
]

HOLDER_DEAD = datetime.max.replace(tzinfo=UTC)
"""The `now` of a reclaim by whoever saw the holder's process end: its term is over."""


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    run: RunRef
    owner: UUID
    epoch: int


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease with its term: renewing it makes it another."""

    run: RunRef
    owner: UUID
    epoch: int
    expires_at: datetime

    @property
    def as_expired(self) -> ExpiredLease:
        return ExpiredLease(self.run, self.owner, self.epoch)


@dataclass(frozen=True, slots=True)
class ExpiredWait:
    run: RunRef
    call: UUID


@dataclass(frozen=True, slots=True)
class UndeliveredChild:
    """A terminal child whose result its parent has not got."""

    child: RunRef
    parent: RunRef
    call: UUID


class RunSweeps(Protocol):
    async def expired_leases(self, limit: int, *, now: datetime | None = None) -> list[ExpiredLease]:
        """RUNNING runs whose lease has expired, oldest first."""
        ...

    async def reclaim(
        self,
        expired: ExpiredLease,
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        cause: str = "lease_expired",
        now: datetime | None = None,
    ) -> RunStatus | None:
        """Take the run from its expired holder: QUEUED (crash counted, backoff 1 s, 2 s, suspect), FAILED with
        `max_attempts_exceeded` and the attempts' failures, or CANCELLED if that was asked for. None when the lease
        was renewed, released or taken meanwhile. `cause` is kept with the attempt. The term is over when it ends at or
        before `now`, the database's time by default: the end of a term that was read before means "not renewed
        since", HOLDER_DEAD "however long it is"."""
        ...

    async def held_by(self, marks: Collection[int]) -> list[HeldLease]:
        """The leases of RUNNING runs whose owners have these marks (`wakeful.domain.ports.presence`)."""
        ...

    async def hopeless(
        self, limit: int, *, max_attempts: int = DEFAULT_MAX_ATTEMPTS, now: datetime | None = None
    ) -> list[RunRef]:
        """QUEUED runs without allowance left, and QUEUED or WAITING_* runs whose deadline has passed."""
        ...

    async def fail_hopeless(
        self, run: RunRef, *, max_attempts: int = DEFAULT_MAX_ATTEMPTS, now: datetime | None = None
    ) -> bool:
        """FAILED with `max_attempts_exceeded` or `deadline_exceeded`, every open call given its result."""
        ...

    async def expired_waits(self, limit: int, *, now: datetime | None = None) -> list[ExpiredWait]:
        """Open questions and approvals whose time has run out."""
        ...

    async def expire_wait(self, wait: ExpiredWait, *, now: datetime | None = None) -> bool:
        """FAILED with code `timed_out` for the question, DENIED for the approval; the run goes on."""
        ...


class ChildSweeps(Protocol):
    async def undelivered(self, limit: int) -> list[UndeliveredChild]:
        """Terminal children with `result_delivered_at` null."""
        ...

    async def deliver_child(self, child: UndeliveredChild) -> bool:
        """Give the parent's call the child's final reply (or how it failed); mark it delivered. A parent that is
        gone or terminal counts as delivered."""
        ...

    async def orphans(self, limit: int) -> list[RunRef]:
        """Live children whose parent is terminal or gone, or was asked to cancel."""
        ...

    async def cancel_orphan(self, child: RunRef) -> bool: ...


class Housekeeping(Protocol):
    async def expire_keys(self, limit: int, *, now: datetime | None = None) -> int:
        """Delete expired idempotency keys of terminal runs; how many went."""
        ...

    async def delete_orphaned_bytes(self, limit: int) -> int:
        """Delete bytes in the store that no artifact has referred to for an hour; how many went. 0 where the store
        cannot list what it holds: its owner's lifecycle rules do it there."""
        ...

    async def tick(self, sweep: str, owner: UUID) -> None:
        """Record that a sweeper looked, by the database's clock."""
        ...

    async def last_tick(self, sweep: str) -> timedelta | None:
        """How long ago any sweeper of this kind last looked; None if never."""
        ...

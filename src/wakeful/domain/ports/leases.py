"""Port: leases. Called from the heartbeat's own thread, on its own connection, therefore synchronous.

What is authoritative: the run's row, judged by the database's clock. How long may a holder trust itself: until
the monotonic time at which it *sent* its last successful heartbeat, plus the lease's length. A slow renewal
answers late and shortens that; a crash or a pause lets the lease expire, a sweep requeues the run, and the
epoch refuses whatever the old holder still writes. Clock skew between machines decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from wakeful.domain.runs import Claim, Lease

__all__ = ["Heartbeat", "LeaseKeeper"]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer to one heartbeat."""

    renewed: frozenset[UUID]
    """Run ids whose lease was extended."""
    lost: frozenset[UUID]
    """Run ids vouched for that are held no more: stop executing them."""
    adopted: tuple[Claim, ...] = ()
    """RUNNING leases of this owner it did not name: a claim whose answer was lost."""
    cancel_requested: frozenset[UUID] = frozenset()


class LeaseKeeper(Protocol):
    def heartbeat(self, owner: UUID, leases: Sequence[Lease], *, lease: timedelta) -> Heartbeat:
        """Extend the leases named, and only those, in one committed statement; rows locked in (tenant, id) order.

        After: each renewed lease expires `lease` after the row was written. Errors: Unavailable; the holder then
        trusts itself no longer than its monotonic deadline.
        """
        ...

    def wait(self, seconds: float, wake: int) -> bool:
        """Return after `seconds`, or as soon as the descriptor `wake` is readable, or when there is a reason for a
        heartbeat now: then True. Reasons are a hint that a run of the owner was asked to cancel, and the end of the
        connection, with which the owner's sign of life has ended (`wakeful.domain.ports.presence`). Hints may be lost.
        """
        ...

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        ...

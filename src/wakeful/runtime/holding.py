"""What the holder of a lease knows about its own right to go on, shared between pool, heartbeat and executor.

The heartbeat thread writes, the run's task reads; every field is a single assignment, so no lock is needed.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from wakeful.domain.runs import Claim, Lease
from wakeful.domain.transactions import must_be_outside

__all__ = ["Holding"]


@dataclass(slots=True)
class Holding:
    """One claimed run in this process.

    `trusted_until` is on the monotonic clock: the sending time of the last successful heartbeat (or claim) plus the
    lease. Past it the holder starts no new side effect, whatever it believes.
    """

    claim: Claim
    trusted_until: float
    lost: bool = False
    """A heartbeat or a refused append said that the lease is another's: write nothing more."""
    cancel_requested: bool = False
    draining: bool = False
    """The process is stopping: hand the run back at the next safe boundary."""
    last_progress: float = field(default_factory=time.monotonic)
    waits: int = 0
    """How many things outside (models, tools) the run waits for."""
    unrepeatable: int = 0
    """How many non-idempotent calls are under way, from intent to result: a drain keeps their lease and waits."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set on the run's loop whenever a flag above changes; waits for the outside race against it."""

    @property
    def lease(self) -> Lease:
        return self.claim.lease

    @property
    def declared_wait(self) -> bool:
        """The run waits for something outside, so a lack of progress means nothing."""
        return self.waits > 0

    def may_start(self) -> bool:
        """Whether a side effect may still be started under this lease."""
        return not self.lost and time.monotonic() < self.trusted_until

    def progressed(self) -> None:
        self.last_progress = time.monotonic()

    @contextmanager
    def waiting_outside(self) -> Iterator[None]:
        """Declare that the task awaits something outside; the heartbeat keeps vouching meanwhile. No transaction may be
        open: AssertionError."""
        must_be_outside()
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1
            self.progressed()

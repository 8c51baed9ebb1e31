"""Claiming: which classes may have due runs, and taking as many as there are slots for."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from wakeful.actors.outage import Outage
from wakeful.actors.slots import Slots
from wakeful.domain.errors import Unavailable
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS, RunQueue
from wakeful.domain.runs import Claim
from wakeful.domain.states import PriorityClass

__all__ = ["Claimer"]

_log = structlog.get_logger(__name__)


class Claimer:
    """Claims in batches until nothing is returned or no slot is free.

    A class is looked at after a hint, a poll, or a batch that was full; one whose batch was not full has nothing due
    until the next of these. Hints and polls come to the same statement, so a lost hint costs time only.
    """

    def __init__(
        self,
        queue: RunQueue,
        slots: Slots,
        *,
        owner: UUID,
        agents: Sequence[str],
        lease: timedelta,
        free_suspects: Callable[[], int],
        take: Callable[[Claim, float], None],
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> None:
        """`take` is given each claim and the monotonic time until which it may be trusted."""
        self._queue, self._slots, self._owner = queue, slots, owner
        self._agents, self._lease, self._max_attempts = tuple(agents), lease, max_attempts
        self._free_suspects, self._take = free_suspects, take
        self._to_look_at: set[PriorityClass] = set()
        self._look = asyncio.Event()
        self._outage = Outage("claims")
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._claim_forever(), name="claims")
            self.look(*self._slots.classes)

    def look(self, *classes: PriorityClass) -> None:
        """Runs of these classes may be due. On the loop only."""
        self._to_look_at.update(self._slots.classes.intersection(classes))
        self._look.set()

    def freed(self) -> None:
        """A slot is free again: classes that filled their last batch are looked at once more."""
        self._look.set()

    async def stop(self) -> None:
        """Claim no more. A claim on its way is awaited and its runs are taken: they would be lost otherwise."""
        self._stopping = True
        self._look.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def _claim_forever(self) -> None:
        while not self._stopping:
            await self._look.wait()
            self._look.clear()
            try:
                await self._claim_until_dry()
                self._outage.over()
            except Unavailable as error:
                # What was claimed without our hearing of it is adopted by the heartbeat; the next poll tries again.
                self._outage.began(error)
            except Exception:
                _log.exception("claims.failed")

    async def _claim_until_dry(self) -> None:
        while not self._stopping and (capacity := self._slots.capacity(self._to_look_at)):
            # Before the claim: a hint that comes meanwhile is about runs it may not have seen.
            self._to_look_at -= capacity.keys()
            trusted_until = time.monotonic() + self._lease.total_seconds()
            claims = await self._queue.claim(
                self._owner,
                capacity=capacity,
                agents=self._agents,
                lease=self._lease,
                suspects=self._free_suspects(),
                max_attempts=self._max_attempts,
            )
            taken = Counter(claim.priority for claim in claims)
            self._to_look_at.update(priority for priority, free in capacity.items() if taken[priority] >= free)
            for claim in claims:
                self._take(claim, trusted_until)

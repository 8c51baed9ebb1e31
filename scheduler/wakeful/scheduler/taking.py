"""Sweeps that take one edge per candidate: expired waits, undelivered children, orphans, runs without hope."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.scheduler.sweeping import Observe, SweepConfig, each, nobody, report, wake_all

__all__ = ["TakingCounts", "TakingSweep"]

Candidate = TypeVar("Candidate", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TakingCounts:
    taken: int = 0
    kept: int = 0
    """Moved on by somebody else between looking and taking."""
    errors: int = 0


class TakingSweep(Generic[Candidate]):
    """`find` lists candidates without a lock; `take` moves one of them in a transaction of its own, and says whether
    it was still there to be moved. With `wakeups`, what was taken is hinted at."""

    def __init__(
        self,
        name: str,
        find: Callable[[int], Awaitable[Sequence[Candidate]]],
        take: Callable[[Candidate], Awaitable[bool]],
        *,
        config: SweepConfig | None = None,
        wakeups: Wakeups | None = None,
        after_batch: Observe = nobody,
    ) -> None:
        self.name = name
        self._find, self._take = find, take
        self._config, self._wakeups = config or SweepConfig(), wakeups or NoWakeups()
        self._after_batch = after_batch

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> TakingCounts:
        counts = TakingCounts()

        async def take(candidate: Candidate) -> None:
            nonlocal counts
            if await self._take(candidate):
                counts = replace(counts, taken=counts.taken + 1)
            else:
                counts = replace(counts, kept=counts.kept + 1)

        errors = await each(
            self._find, take, self._config, name=self.name, after_batch=lambda: self._after_batch(counts)
        )
        counts = replace(counts, errors=errors)
        report(self.name, counts)
        if counts.taken:
            wake_all(self._wakeups)
        return counts

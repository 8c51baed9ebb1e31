"""Sweeps that delete what is past its time: idempotency keys, and bytes that no artifact refers to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from wakeful.scheduler.sweeping import Observe, SweepConfig, nobody, report

__all__ = ["DeletingSweep", "DeletionCounts"]

UNHURRIED = SweepConfig(interval=timedelta(minutes=1), batch=1000)
"""What is kept for hours may stay a minute more."""


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    deleted: int = 0


class DeletingSweep:
    """`delete` removes at most so many and says how many went; what it leaves half done it finds again."""

    def __init__(
        self,
        name: str,
        delete: Callable[[int], Awaitable[int]],
        *,
        config: SweepConfig = UNHURRIED,
        after_batch: Observe = nobody,
    ) -> None:
        self.name = name
        self._delete, self._config, self._after_batch = delete, config, after_batch

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> DeletionCounts:
        counts = DeletionCounts()
        for _ in range(self._config.batches):
            deleted = await self._delete(self._config.batch)
            counts = replace(counts, deleted=counts.deleted + deleted)
            if deleted:
                self._after_batch(counts)
            if deleted < self._config.batch:
                break
        report(self.name, counts)
        return counts

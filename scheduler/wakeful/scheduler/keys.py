"""Sweep: idempotency keys that have expired are deleted."""

from dataclasses import dataclass, replace
from datetime import timedelta

from wakeful.domain.ports.sweeps import Housekeeping
from wakeful.scheduler.sweeping import Observe, SweepConfig, nobody, report

__all__ = ["KeyCounts", "KeySweep"]

DEFAULT = SweepConfig(interval=timedelta(minutes=1), batch=1000)
"""Keys are kept for hours; a minute more changes nothing."""


@dataclass(frozen=True, slots=True)
class KeyCounts:
    deleted: int = 0


class KeySweep:
    """Expired keys of terminal runs. One batch is one transaction."""

    name = "keys"

    def __init__(
        self, housekeeping: Housekeeping, *, config: SweepConfig = DEFAULT, after_batch: Observe = nobody
    ) -> None:
        self._housekeeping, self._config, self._after_batch = housekeeping, config, after_batch

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> KeyCounts:
        counts = KeyCounts()
        for _ in range(self._config.batches):
            deleted = await self._housekeeping.expire_keys(self._config.batch)
            counts = replace(counts, deleted=counts.deleted + deleted)
            if deleted:
                self._after_batch(counts)
            if deleted < self._config.batch:
                break
        report(self.name, counts)
        return counts

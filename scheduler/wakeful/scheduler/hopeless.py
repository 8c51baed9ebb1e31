"""Sweep: runs that nothing can complete any more fail, with their reason."""

from dataclasses import dataclass, replace
from datetime import timedelta

from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.ports.sweeps import RunSweeps
from wakeful.domain.scopes import RunRef
from wakeful.scheduler.sweeping import Observe, SweepConfig, each, nobody, report

__all__ = ["HopelessCounts", "HopelessSweep", "HopelessSweepConfig"]


@dataclass(frozen=True, slots=True)
class HopelessSweepConfig(SweepConfig):
    max_attempts: int = DEFAULT_MAX_ATTEMPTS


@dataclass(frozen=True, slots=True)
class HopelessCounts:
    failed: int = 0
    kept: int = 0
    """Moved on by somebody else meanwhile."""
    errors: int = 0


class HopelessSweep:
    """QUEUED runs without allowance left, and QUEUED or WAITING_* runs past their deadline."""

    name = "hopeless"

    def __init__(
        self, sweeps: RunSweeps, *, config: HopelessSweepConfig | None = None, after_batch: Observe = nobody
    ) -> None:
        self._sweeps, self._config, self._after_batch = sweeps, config or HopelessSweepConfig(), after_batch

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> HopelessCounts:
        counts = HopelessCounts()

        async def find(limit: int) -> list[RunRef]:
            return await self._sweeps.hopeless(limit, max_attempts=self._config.max_attempts)

        async def fail(run: RunRef) -> None:
            nonlocal counts
            if await self._sweeps.fail_hopeless(run, max_attempts=self._config.max_attempts):
                counts = replace(counts, failed=counts.failed + 1)
            else:
                counts = replace(counts, kept=counts.kept + 1)

        errors = await each(find, fail, self._config, name=self.name, after_batch=lambda: self._after_batch(counts))
        counts = replace(counts, errors=errors)
        report(self.name, counts)
        return counts

"""Sweep: child runs whose parent ended, is gone or was asked to cancel are cancelled."""

from dataclasses import dataclass, replace
from datetime import timedelta

from wakeful.domain.ports.sweeps import ChildSweeps
from wakeful.domain.scopes import RunRef
from wakeful.scheduler.sweeping import Observe, SweepConfig, each, nobody, report

__all__ = ["OrphanCounts", "OrphanSweep"]


@dataclass(frozen=True, slots=True)
class OrphanCounts:
    cancelled: int = 0
    kept: int = 0
    """Ended meanwhile, or asked to cancel already."""
    errors: int = 0


class OrphanSweep:
    """Live children that nobody waits for any more."""

    name = "orphans"

    def __init__(
        self, sweeps: ChildSweeps, *, config: SweepConfig | None = None, after_batch: Observe = nobody
    ) -> None:
        self._sweeps, self._config, self._after_batch = sweeps, config or SweepConfig(), after_batch

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> OrphanCounts:
        counts = OrphanCounts()

        async def cancel(child: RunRef) -> None:
            nonlocal counts
            if await self._sweeps.cancel_orphan(child):
                counts = replace(counts, cancelled=counts.cancelled + 1)
            else:
                counts = replace(counts, kept=counts.kept + 1)

        errors = await each(
            self._sweeps.orphans, cancel, self._config, name=self.name, after_batch=lambda: self._after_batch(counts)
        )
        counts = replace(counts, errors=errors)
        report(self.name, counts)
        return counts

"""Sweep: questions and approvals whose time has run out get their one result, and their run goes on."""

from dataclasses import dataclass, replace
from datetime import timedelta

from wakeful.domain.ports.sweeps import ExpiredWait, RunSweeps
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.scheduler.sweeping import Observe, SweepConfig, each, nobody, report, wake_all

__all__ = ["WaitCounts", "WaitSweep"]


@dataclass(frozen=True, slots=True)
class WaitCounts:
    expired: int = 0
    kept: int = 0
    """Answered meanwhile."""
    errors: int = 0


class WaitSweep:
    """Expired questions and approvals."""

    name = "waits"

    def __init__(
        self,
        sweeps: RunSweeps,
        *,
        config: SweepConfig | None = None,
        wakeups: Wakeups | None = None,
        after_batch: Observe = nobody,
    ) -> None:
        self._sweeps, self._config = sweeps, config or SweepConfig()
        self._wakeups, self._after_batch = wakeups or NoWakeups(), after_batch

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> WaitCounts:
        counts = WaitCounts()

        async def expire(wait: ExpiredWait) -> None:
            nonlocal counts
            if await self._sweeps.expire_wait(wait):
                counts = replace(counts, expired=counts.expired + 1)
            else:
                counts = replace(counts, kept=counts.kept + 1)

        errors = await each(
            self._sweeps.expired_waits,
            expire,
            self._config,
            name=self.name,
            after_batch=lambda: self._after_batch(counts),
        )
        counts = replace(counts, errors=errors)
        report(self.name, counts)
        if counts.expired:
            wake_all(self._wakeups)
        return counts

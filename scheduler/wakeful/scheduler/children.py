"""Sweep: the results of child runs that ended are delivered to the runs that wait for them."""

from dataclasses import dataclass, replace
from datetime import timedelta

from wakeful.domain.ports.sweeps import ChildSweeps, UndeliveredChild
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.scheduler.sweeping import Observe, SweepConfig, each, nobody, report, wake_all

__all__ = ["ChildCounts", "ChildSweep"]


@dataclass(frozen=True, slots=True)
class ChildCounts:
    delivered: int = 0
    kept: int = 0
    """Delivered by somebody else meanwhile."""
    errors: int = 0


class ChildSweep:
    """Terminal children whose parent has not got their result. Needs no hint from the child's end."""

    name = "children"

    def __init__(
        self,
        sweeps: ChildSweeps,
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

    async def run_once(self) -> ChildCounts:
        counts = ChildCounts()

        async def deliver(child: UndeliveredChild) -> None:
            nonlocal counts
            if await self._sweeps.deliver_child(child):
                counts = replace(counts, delivered=counts.delivered + 1)
            else:
                counts = replace(counts, kept=counts.kept + 1)

        errors = await each(
            self._sweeps.undelivered,
            deliver,
            self._config,
            name=self.name,
            after_batch=lambda: self._after_batch(counts),
        )
        counts = replace(counts, errors=errors)
        report(self.name, counts)
        if counts.delivered:
            wake_all(self._wakeups)
        return counts

"""The scheduler process: every sweep at its interval. Any number of them may run at once."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import structlog

from wakeful.domain.ports.presence import PresenceReader
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.ports.sweeps import ChildSweeps, Housekeeping, RunSweeps
from wakeful.domain.ports.wakeups import Wakeups
from wakeful.scheduler.deaths import DeathSweep, DeathSweepConfig
from wakeful.scheduler.deleting import DeletingSweep
from wakeful.scheduler.leases import LeaseSweep, LeaseSweepConfig
from wakeful.scheduler.sweeping import Sweep, SweepConfig
from wakeful.scheduler.taking import TakingSweep
from wakeful.scheduler.ticker import Ticker

__all__ = ["Scheduler", "standard_sweeps"]

_log = structlog.get_logger(__name__)

BYTES = SweepConfig(interval=timedelta(minutes=10), batch=1000)
"""Orphaned bytes are an hour old before they are one; every pass lists the whole store."""


class Scheduler:
    """`start()` is idempotent; `stop()` lets running sweeps finish and tolerates never started and twice."""

    def __init__(self, sweeps: Sequence[Sweep], *, ticker: Ticker | None = None) -> None:
        self.sweeps = tuple(sweeps)
        self._ticker = ticker or Ticker()
        self._added = False

    async def start(self) -> None:
        """Every sweep looks at once, and then at its interval."""
        if not self._added:
            self._added = True
            for sweep in self.sweeps:
                self._ticker.every(sweep.interval, sweep.run_once, name=f"sweep {sweep.name}")
        await self._ticker.start()
        _log.info("scheduler.started", sweeps=[sweep.name for sweep in self.sweeps])

    async def stop(self) -> None:
        await self._ticker.stop()


def standard_sweeps(
    *,
    run_sweeps: RunSweeps,
    child_sweeps: ChildSweeps,
    housekeeping: Housekeeping,
    wakeups: Wakeups,
    interval: timedelta = timedelta(seconds=1),
    lease: timedelta = timedelta(seconds=30),
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    presence: PresenceReader | None = None,
    death_notice: timedelta = timedelta(seconds=3),
) -> tuple[Sweep, ...]:
    """Every sweep, looking every `interval`; `lease` and `max_attempts` are the workers'. Without `presence` no
    worker's death is noticed before its leases expire."""
    config = SweepConfig(interval=interval)
    outage = max(LeaseSweepConfig().outage, 3 * interval)
    leases = LeaseSweepConfig(interval=interval, lease=lease, outage=outage, max_attempts=max_attempts)
    watching = () if presence is None else (_deaths(run_sweeps, presence, death_notice, max_attempts, wakeups),)
    return (
        *watching,
        LeaseSweep(run_sweeps, housekeeping, config=leases, wakeups=wakeups),
        # Runs without allowance, and QUEUED or WAITING_* runs past their deadline.
        TakingSweep(
            "hopeless",
            partial(run_sweeps.hopeless, max_attempts=max_attempts),
            partial(run_sweeps.fail_hopeless, max_attempts=max_attempts),
            config=config,
        ),
        TakingSweep("waits", run_sweeps.expired_waits, run_sweeps.expire_wait, config=config, wakeups=wakeups),
        TakingSweep("children", child_sweeps.undelivered, child_sweeps.deliver_child, config=config, wakeups=wakeups),
        # Live children whose parent ended, is gone or was asked to cancel.
        TakingSweep("orphans", child_sweeps.orphans, child_sweeps.cancel_orphan, config=config),
        DeletingSweep("keys", housekeeping.expire_keys),
        DeletingSweep("artifact_bytes", housekeeping.delete_orphaned_bytes, config=BYTES),
    )


def _deaths(
    run_sweeps: RunSweeps, presence: PresenceReader, notice: timedelta, max_attempts: int, wakeups: Wakeups
) -> Sweep:
    config = DeathSweepConfig.of(notice, max_attempts=max_attempts)
    return DeathSweep(run_sweeps, presence, config=config, wakeups=wakeups)

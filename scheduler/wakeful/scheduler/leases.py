"""Sweep: runs whose holder let the lease expire go back to the queue, or fail once too often."""

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import structlog

from wakeful.domain.errors import ConfigurationError
from wakeful.domain.ids import new_id
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.ports.sweeps import ExpiredLease, Housekeeping, RunSweeps
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.domain.states import RunStatus
from wakeful.scheduler.sweeping import Observe, SweepConfig, each, nobody, report, wake_all

__all__ = ["BACKOFF_SECONDS", "LeaseCounts", "LeaseSweep", "LeaseSweepConfig", "ReclaimCounts", "counted"]

Counted = TypeVar("Counted", bound="ReclaimCounts")

_log = structlog.get_logger(__name__)

BACKOFF_SECONDS = 1.0
"""After this the first reclaimed run is due again (`RunSweeps.reclaim`)."""


@dataclass(frozen=True, slots=True)
class LeaseSweepConfig(SweepConfig):
    lease: timedelta = timedelta(seconds=30)
    """The workers' lease."""
    outage: timedelta = timedelta(seconds=5)
    """No sweep for longer than this means that the database was away, and with it every heartbeat."""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is a new class, which zero-argument super() does not know.
        SweepConfig.__post_init__(self)
        if self.lease <= timedelta(0) or self.outage <= self.interval:
            raise ConfigurationError(
                f"the lease ({self.lease}) must be longer than 0, and the outage ({self.outage}) longer than the "
                f"sweep's interval ({self.interval})"
            )


@dataclass(frozen=True, slots=True)
class ReclaimCounts:
    requeued: int = 0
    failed: int = 0
    cancelled: int = 0
    kept: int = 0
    """Renewed, released or taken by another sweep meanwhile."""
    errors: int = 0


@dataclass(frozen=True, slots=True)
class LeaseCounts(ReclaimCounts):
    held_off: int = 0
    """1 when this pass did not sweep because an outage had just ended."""


class LeaseSweep:
    """A database outage is no crash: when no sweep has looked for `outage`, leases are left alone for one full
    lease, in which living workers renew theirs.

    The tick is written only by passes that swept, so that every scheduler sees an outage that one of them is already
    waiting out; each also goes by its own clock, because the first tick after an outage hides it from the others.
    """

    name = "leases"

    def __init__(
        self,
        sweeps: RunSweeps,
        housekeeping: Housekeeping,
        *,
        config: LeaseSweepConfig | None = None,
        wakeups: Wakeups | None = None,
        owner: UUID | None = None,
        after_batch: Observe = nobody,
    ) -> None:
        self._sweeps, self._housekeeping = sweeps, housekeeping
        self._config = config or LeaseSweepConfig()
        self._wakeups, self._owner, self._after_batch = wakeups or NoWakeups(), owner or new_id(), after_batch
        self._looked: float | None = None
        self._hold_until: float | None = None

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> LeaseCounts:
        last = await self._housekeeping.last_tick(self.name)
        if self._after_outage(last, time.monotonic()):
            return LeaseCounts(held_off=1)
        await self._housekeeping.tick(self.name, self._owner)
        counts = LeaseCounts()

        async def reclaim(expired: ExpiredLease) -> None:
            nonlocal counts
            status = await self._sweeps.reclaim(expired, max_attempts=self._config.max_attempts)
            counts = counted(counts, status)

        errors = await each(
            self._sweeps.expired_leases,
            reclaim,
            self._config,
            name=self.name,
            after_batch=lambda: self._after_batch(counts),
        )
        counts = replace(counts, errors=errors)
        report(self.name, counts)
        if counts.requeued:
            # Not due before its backoff has passed: a hint now would find nothing.
            asyncio.get_running_loop().call_later(BACKOFF_SECONDS, wake_all, self._wakeups)
        return counts

    def _after_outage(self, last: timedelta | None, now: float) -> bool:
        outage = self._config.outage.total_seconds()
        own_gap = self._looked is not None and now - self._looked > outage
        shared_gap = last is not None and last.total_seconds() > outage
        self._looked = now
        if own_gap or (shared_gap and self._hold_until is None):
            self._hold_until = now + self._config.lease.total_seconds()
            _log.warning("sweep.held_off", sweep=self.name, seconds=self._config.lease.total_seconds())
        if self._hold_until is not None and now < self._hold_until:
            return True
        self._hold_until = None
        return False


def counted(counts: Counted, status: RunStatus | None) -> Counted:
    """`counts` with what `RunSweeps.reclaim` answered."""
    match status:
        case RunStatus.QUEUED:
            return replace(counts, requeued=counts.requeued + 1)
        case RunStatus.FAILED:
            return replace(counts, failed=counts.failed + 1)
        case RunStatus.CANCELLED:
            return replace(counts, cancelled=counts.cancelled + 1)
        case _:
            return replace(counts, kept=counts.kept + 1)

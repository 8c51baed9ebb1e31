"""Sweep: the leases of workers that died end long before their term.

Proof of death is, over one unbroken connection: the worker's mark was seen; then it was gone, and stayed away for the
notice; and none of its leases was renewed, and none claimed, meanwhile. A worker whose connection was cut marks itself
again at once; a server that restarted ends the watcher's own connection too, and nothing is concluded across two. Every
doubt is decided by the lease: frozen hosts, partitions and pooled connections give no proof.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from wakeful.domain.errors import ConfigurationError
from wakeful.domain.ports.presence import Presence, PresenceReader, mark_of
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.ports.sweeps import HeldLease, RunSweeps
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.scheduler.leases import BACKOFF_SECONDS, ReclaimCounts, counted
from wakeful.scheduler.sweeping import Observe, SweepConfig, each, nobody, report, wake_all

__all__ = ["DeathCounts", "DeathSweep", "DeathSweepConfig"]

_log = structlog.get_logger(__name__)

CAUSE = "worker_died"
LOOKS_PER_NOTICE = 24


@dataclass(frozen=True, slots=True)
class DeathSweepConfig(SweepConfig):
    interval: timedelta = timedelta(milliseconds=250)
    notice: timedelta = timedelta(seconds=3)
    """How long a mark has to stay away."""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS

    def __post_init__(self) -> None:
        SweepConfig.__post_init__(self)
        if self.notice <= self.interval:
            raise ConfigurationError(
                f"the notice ({self.notice}) must be longer than the interval ({self.interval}) at which it is watched"
            )

    @classmethod
    def of(cls, notice: timedelta, *, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> "DeathSweepConfig":
        """Looking two dozen times per notice: that is how late a death is seen, and again how late it is proved."""
        return cls(interval=notice / LOOKS_PER_NOTICE, notice=notice, max_attempts=max_attempts)


@dataclass(frozen=True, slots=True)
class DeathCounts(ReclaimCounts):
    alive: int = 0
    """Workers whose mark stayed away, and whose leases were renewed all the same."""


@dataclass(frozen=True, slots=True)
class _Missing:
    """A mark that was seen and is gone, and what its owner held then."""

    since: float
    leases: frozenset[HeldLease]


class DeathSweep:
    """Watches the marks; one watcher or many. Each proof is handled one run per transaction, as a lease expiration
    like any other: crash counted, backoff, suspect."""

    name = "deaths"

    def __init__(
        self,
        sweeps: RunSweeps,
        presence: PresenceReader,
        *,
        config: DeathSweepConfig | None = None,
        wakeups: Wakeups | None = None,
        clock: Callable[[], float] = time.monotonic,
        after_batch: Observe = nobody,
    ) -> None:
        self._sweeps, self._presence, self._config = sweeps, presence, config or DeathSweepConfig()
        self._wakeups, self._clock, self._after_batch = wakeups or NoWakeups(), clock, after_batch
        self._connection: int | None = None
        self._looked = 0.0
        self._seen: set[int] = set()
        self._missing: dict[int, _Missing] = {}
        self._told_blind = False

    @property
    def interval(self) -> timedelta:
        return self._config.interval

    async def run_once(self) -> DeathCounts:
        counts = DeathCounts()
        before = self._clock()
        presence = await self._presence.look()
        if presence is None:
            self._say_blind()
            return counts
        self._take_in(presence, before)
        await self._note_missing(self._seen - presence.marks - self._missing.keys())
        for mark, missing in list(self._missing.items()):
            # From after the first look without it until before the last one.
            if before - missing.since >= self._config.notice.total_seconds():
                counts = await self._conclude(mark, missing, counts)
        report(self.name, counts)
        if counts.requeued:
            # Not due before its backoff has passed: a hint now would find nothing.
            asyncio.get_running_loop().call_later(BACKOFF_SECONDS, wake_all, self._wakeups)
        return counts

    def _take_in(self, presence: Presence, before: float) -> None:
        if presence.connection != self._connection:
            self._connection = presence.connection
            self._seen.clear()
            self._missing.clear()
        elif before - self._looked > self._longest_gap():
            # Nobody looked for a while, this process being stopped perhaps: what was missing may have been back.
            self._missing.clear()
        self._looked = self._clock()
        self._seen |= presence.marks
        for mark in self._missing.keys() & presence.marks:
            del self._missing[mark]

    def _longest_gap(self) -> float:
        return max(4 * self._config.interval, self._config.notice / 2).total_seconds()

    async def _note_missing(self, marks: set[int]) -> None:
        if not marks:
            return
        since = self._clock()
        leases = await self._sweeps.held_by(marks)
        for mark in marks:
            held = frozenset(lease for lease in leases if mark_of(lease.owner) == mark)
            if held:
                self._missing[mark] = _Missing(since, held)
            else:
                self._seen.discard(mark)  # it ended in good order

    async def _conclude(self, mark: int, missing: _Missing, counts: DeathCounts) -> DeathCounts:
        leases = await self._sweeps.held_by([mark])
        self._missing.pop(mark)
        self._seen.discard(mark)
        if not missing.leases.issuperset(leases):
            _log.warning("worker.unmarked", leases=len(leases))
            return replace(counts, alive=counts.alive + 1)
        if leases:
            owners = sorted({str(lease.owner) for lease in leases})
            _log.warning("worker.died", owners=owners, leases=len(leases), notice_seconds=self._notice_seconds)
        return await self._expire(leases, counts)

    @property
    def _notice_seconds(self) -> float:
        return self._config.notice.total_seconds()

    async def _expire(self, leases: Sequence[HeldLease], counts: DeathCounts) -> DeathCounts:
        async def find(_limit: int) -> Sequence[HeldLease]:
            return leases

        async def expire(lease: HeldLease) -> None:
            nonlocal counts
            # A term that still ends when it did was not renewed: judged again under the run's lock.
            status = await self._sweeps.reclaim(
                lease.as_expired, max_attempts=self._config.max_attempts, cause=CAUSE, now=lease.expires_at
            )
            counts = counted(counts, status)

        config = replace(self._config, batch=max(1, len(leases)), batches=1)
        errors = await each(find, expire, config, name=self.name, after_batch=lambda: self._after_batch(counts))
        return replace(counts, errors=counts.errors + errors)

    def _say_blind(self) -> None:
        if not self._told_blind:
            self._told_blind = True
            _log.info("deaths.unseen", reason="the direct address does not reach PostgreSQL itself: leases decide")

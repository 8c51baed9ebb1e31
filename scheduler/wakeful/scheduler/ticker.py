"""Calling functions at intervals: our seam around APScheduler, which nothing else knows."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]
from apscheduler.triggers.interval import IntervalTrigger  # type: ignore[import-untyped]

from wakeful.domain.errors import WakefulError

__all__ = ["Ticker"]

Tick = Callable[[], Awaitable[object]]

GUARD_INTERVAL = timedelta(seconds=5)

_log = structlog.get_logger(__name__)

# Their executor writes two lines per tick at INFO, and a warning for every tick that found the last one running.
_QUIET = ("apscheduler.executors.default", "apscheduler.scheduler")


@dataclass
class _Job:
    name: str
    interval: timedelta
    tick: Tick
    fired: float = field(default_factory=time.monotonic)
    failing: bool = False


class Ticker:
    """Calls each tick at once and then every interval, never twice at the same time.

    A tick that is late is made up for by one call, however late: no misfire grace, coalesced. A tick that raises is
    logged, once until it works again, and called again at its next interval. `start` is idempotent; `stop` lets
    running ticks finish and tolerates never started and twice.
    """

    def __init__(self) -> None:
        self._jobs: list[_Job] = []
        self._running: set[asyncio.Task[object]] = set()
        self._scheduler: AsyncIOScheduler | None = None
        self._guard: asyncio.TimerHandle | None = None

    def every(self, interval: timedelta, tick: Tick, *, name: str) -> None:
        """Add a tick, before or after `start`; `name` is unique and appears in logs."""
        job = _Job(name, interval, tick)
        self._jobs.append(job)
        if self._scheduler is not None:
            self._add(self._scheduler, job)

    async def start(self) -> None:
        if self._scheduler is not None:
            return
        for logger in _QUIET:
            logging.getLogger(logger).setLevel(logging.ERROR)
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        for job in self._jobs:
            self._add(self._scheduler, job)
        self._scheduler.start()
        self._watch_clock(self._scheduler)

    async def stop(self) -> None:
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is None:
            return
        if self._guard is not None:
            self._guard.cancel()
        scheduler.remove_all_jobs()
        # Before the shutdown, which would cancel what runs.
        if self._running:
            await asyncio.wait(self._running)
        scheduler.shutdown()
        await asyncio.sleep(0)  # APScheduler shuts down in the loop's next turn

    def _add(self, scheduler: AsyncIOScheduler, job: _Job) -> None:
        async def call() -> None:
            await self._call(job)

        scheduler.add_job(
            call,
            IntervalTrigger(seconds=job.interval.total_seconds(), timezone=UTC),
            id=job.name,
            next_run_time=datetime.now(UTC),
            misfire_grace_time=None,
            coalesce=True,
            max_instances=1,
        )

    async def _call(self, job: _Job) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - APScheduler runs coroutines as tasks
        self._running.add(task)
        job.fired = time.monotonic()
        try:
            await job.tick()
            if job.failing:
                job.failing = False
                _log.info("tick.recovered", tick=job.name)
        except Exception as error:
            if not job.failing:
                job.failing = True
                expected = isinstance(error, WakefulError)
                _log.warning(
                    "tick.failed", tick=job.name, error=type(error).__name__, exc_info=None if expected else error
                )
        finally:
            self._running.discard(task)

    def _watch_clock(self, scheduler: AsyncIOScheduler) -> None:
        """APScheduler goes by the wall clock: set back by an hour, it would not fire for an hour."""
        now = time.monotonic()
        for job in self._jobs:
            if now - job.fired > 2 * job.interval.total_seconds() + GUARD_INTERVAL.total_seconds():
                job.fired = now
                scheduler.modify_job(job.name, next_run_time=datetime.now(UTC))
        loop = asyncio.get_running_loop()
        self._guard = loop.call_later(GUARD_INTERVAL.total_seconds(), self._watch_clock, scheduler)

"""A scheduler process: the sweeps, and the projections' follower, over an open store."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial

from wakeful.bootstrap import resources
from wakeful.bootstrap.metrics import SchedulerMetrics, serve_metrics
from wakeful.bootstrap.settings import Settings
from wakeful.persistence.overview import overview
from wakeful.projections.following import FollowConfig, Follower
from wakeful.projections.standard import STANDARD
from wakeful.scheduler.service import Scheduler as Sweeper
from wakeful.scheduler.service import standard_sweeps
from wakeful.scheduler.sweeping import Sweep

__all__ = ["Scheduler"]


class Scheduler:
    """One scheduler process of any number. `start()` is idempotent; `stop()` tolerates never started and twice."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is opened."""
        self._settings = settings
        self._open: AsyncExitStack | None = None
        self._sweeper: Sweeper | None = None
        self.metrics_port: int | None = None
        """Where `/metrics` is served; None when it is not."""

    async def start(self) -> None:
        """Return when it sweeps. Raises Unavailable, ConfigurationError when metrics cannot be served, and SchemaError
        when the database is not at the revision this code expects; nothing is migrated then."""
        if self._sweeper is not None:
            return
        async with AsyncExitStack() as opening:
            store = await resources.open_store(self._settings)
            opening.push_async_callback(store.close)
            presence = store.presence()
            opening.push_async_callback(presence.close)
            follower = Follower(
                store.projections,
                STANDARD,
                config=FollowConfig(interval=timedelta(seconds=self._settings.projection_seconds)),
            )
            sweeps: tuple[Sweep, ...] = (
                *standard_sweeps(
                    run_sweeps=store.run_sweeps,
                    child_sweeps=store.child_sweeps,
                    housekeeping=store.housekeeping,
                    wakeups=await opening.enter_async_context(resources.open_wakeups(self._settings)),
                    interval=timedelta(seconds=self._settings.sweep_seconds),
                    lease=self._settings.lease,
                    presence=presence,
                    death_notice=timedelta(seconds=self._settings.death_notice_seconds),
                ),
                follower,
            )
            if self._settings.metrics_port is not None:
                metrics = SchedulerMetrics(
                    partial(overview, self._settings.direct_url(), role_prefix=self._settings.role_prefix)
                )
                sweeps = tuple(metrics.observed(sweep) for sweep in sweeps)
                self.metrics_port, end = serve_metrics(
                    metrics.registry, self._settings.metrics_host, self._settings.metrics_port
                )
                opening.push_async_callback(asyncio.to_thread, end)
            sweeper = Sweeper(sweeps)
            opening.push_async_callback(sweeper.stop)
            await sweeper.start()
            self._sweeper, self._open = sweeper, opening.pop_all()

    async def drain(self) -> None:
        """Sweep no more; on return no sweep runs."""
        if self._sweeper is not None:
            await self._sweeper.stop()

    async def stop(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

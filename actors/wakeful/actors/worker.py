"""The worker process: the pool, and the consumers that wake it."""

import asyncio
from datetime import timedelta

import dramatiq

from wakeful.actors.pool import Pool
from wakeful.actors.queues import wake_queue
from wakeful.actors.wake import Hints, hints_of
from wakeful.domain.errors import ConfigurationError

__all__ = ["DEFAULT_GRACE", "Worker"]

DEFAULT_GRACE = timedelta(seconds=25)
"""Below the thirty seconds that orchestrators leave between SIGTERM and SIGKILL."""

_IDLE_MS = 1000
_CONSUMERS_STOP_MS = 5000


class Worker:
    """`start()` is idempotent; `drain()` and `stop()` tolerate never started and twice.

    With a broker (from `make_broker`) its wake actors hint this pool. A broker that cannot be reached, from the start
    or later, only makes runs start at poll speed.
    """

    def __init__(self, pool: Pool, *, broker: dramatiq.Broker | None = None, grace: timedelta = DEFAULT_GRACE) -> None:
        """Raises ConfigurationError for a broker that `make_broker` did not make."""
        self.pool, self.grace = pool, grace
        self._broker = broker
        self._hints: Hints | None = None
        self._consumers: dramatiq.Worker | None = None
        if broker is not None:
            self._hints = hints_of(broker)
            if self._hints is None:
                raise ConfigurationError("this broker has no wake actors: make it with make_broker")

    async def start(self) -> None:
        """Return when the pool claims."""
        await self.pool.start()
        if self._broker is not None and self._hints is not None and self._consumers is None:
            self._hints.attach(self.pool)
            queues = {wake_queue(priority) for priority in self.pool.slots.classes}
            self._consumers = dramatiq.Worker(self._broker, queues=queues, worker_threads=1, worker_timeout=_IDLE_MS)
            self._consumers.start()

    async def drain(self, grace: timedelta | None = None) -> None:
        """Claim no more, let runs go within the grace, heartbeat last; on return nothing runs any more."""
        # Hints first: they would only be dropped. Their threads end while the runs are waited for.
        if self._hints is not None:
            self._hints.detach()
        consumers, self._consumers = self._consumers, None
        ended = asyncio.create_task(_stop_consumers(self._broker, consumers))
        await self.pool.drain(self.grace if grace is None else grace)
        await ended

    async def stop(self) -> None:
        """Drain without any grace."""
        await self.drain(timedelta(0))


async def _stop_consumers(broker: dramatiq.Broker | None, consumers: dramatiq.Worker | None) -> None:
    if broker is not None and consumers is not None:
        await asyncio.to_thread(consumers.stop, _CONSUMERS_STOP_MS)
        await asyncio.to_thread(broker.close)

"""How long a submitted run waits for an idle worker."""

import asyncio
import random
import time
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.bench import SCOPE, Bench
from benchmarks.figure import Figure, Measured, at_most, counted
from benchmarks.process import cpu_seconds
from benchmarks.sample import CLOCK
from wakeful.client import connect

__all__ = ["FIGURES"]

QUIET_SECONDS = 5
"""How long the idle worker's processor time is counted."""


@dataclass(frozen=True, slots=True)
class _Waits:
    """Milliseconds from before `submit` was called until the model was asked, and the idle worker's processor time."""

    ms: list[float]
    cpu_percent: float

    def measured(self, value: float) -> Measured:
        return Measured(value, min(self.ms), max(self.ms), {"submits": len(self.ms)})


async def idle_wakeup_p50_ms(bench: Bench) -> Measured:
    """Milliseconds from calling `submit` until the run's first model call, in an idle worker process woken through
    the broker (Valkey); the median. At most 6."""
    waits = await _with_broker(bench)
    return waits.measured(median(waits.ms))


async def idle_wakeup_p99_ms(bench: Bench) -> Measured:
    """The 99th percentile of the same submits. At most 20."""
    waits = await _with_broker(bench)
    return waits.measured(quantiles(waits.ms, n=100)[98])


async def idle_poll_p50_ms(bench: Bench) -> Measured:
    """The same median with every hint lost: no broker, so the worker's poll every 250 ms finds the run. Half of that
    is the expectation; at most 200."""
    waits: _Waits = await bench.once("poll", lambda: _waits(bench, broker=False, submits=20 if bench.quick else 60))
    return waits.measured(median(waits.ms))


async def idle_worker_cpu_percent(bench: Bench) -> Measured:
    """Processor time that the idle worker process with the broker uses, in percent of a core. At most 2."""
    return counted((await _with_broker(bench)).cpu_percent)


async def _with_broker(bench: Bench) -> _Waits:
    waits: _Waits = await bench.once("wakeup", lambda: _waits(bench, broker=True, submits=50 if bench.quick else 300))
    return waits


async def _waits(bench: Bench, *, broker: bool, submits: int) -> _Waits:
    database = bench.database("bench_wakeup")
    broker_url = bench.broker_url if broker else None
    pauses = random.Random(7)
    async with (
        bench.worker(database, broker_url=broker_url) as worker,
        connect(
            settings=database.settings(broker_url=broker_url), tenant=SCOPE.tenant_id, principal=SCOPE.principal_id
        ) as wakeful,
    ):
        found = []
        for number in range(submits + 5):
            session = await wakeful.sessions.create(agent=CLOCK)
            # Until everything is asleep again, and out of step with the polls.
            await asyncio.sleep(pauses.uniform(0.02, 0.04) if broker else pauses.uniform(0.05, 0.3))
            began = time.monotonic_ns()
            run = await session.submit("now")
            asked = int(await run.result(timeout=10))
            if number >= 5:  # the first ones open connections
                found.append((asked - began) / 1e6)
        before = cpu_seconds(worker.pid)
        await asyncio.sleep(QUIET_SECONDS)
        used = cpu_seconds(worker.pid) - before
    return _Waits(found, 100 * used / QUIET_SECONDS)


FIGURES = (
    Figure(idle_wakeup_p50_ms, at_most(6.0)),
    Figure(idle_wakeup_p99_ms, at_most(20.0)),
    Figure(idle_poll_p50_ms, at_most(200.0)),
    Figure(idle_worker_cpu_percent, at_most(2.0)),
)

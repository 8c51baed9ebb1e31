"""How long a killed worker's runs are not executed by anybody."""

import asyncio
import os
import random
import signal
import time
from statistics import median, quantiles

from benchmarks.bench import SCOPE, Bench
from benchmarks.figure import Figure, Measured, at_most
from benchmarks.sample import PHOENIX
from wakeful.bootstrap.children import Child
from wakeful.client import RunHandle, Wakeful, connect

__all__ = ["FIGURES"]

RUNS_PER_KILL = 4
DEFAULT_NOTICE_SECONDS, SHORTEST_NOTICE_SECONDS = 3.0, 0.5


async def kill_to_elsewhere_p50_ms(bench: Bench) -> Measured:
    """Milliseconds from SIGKILL of a worker until its runs' next model call in another worker, at the default lease
    (30 s) and notice (3 s); the median. At most 5000."""
    ms = await _recoveries(bench, DEFAULT_NOTICE_SECONDS)
    return _measured(median(ms), ms)


async def kill_to_elsewhere_p99_ms(bench: Bench) -> Measured:
    """The 99th percentile of the same kills. At most 5000."""
    ms = await _recoveries(bench, DEFAULT_NOTICE_SECONDS)
    return _measured(quantiles(ms, n=100)[98], ms)


async def kill_to_elsewhere_shortest_p50_ms(bench: Bench) -> Measured:
    """The same with the shortest notice (0.5 s); the median. At most 2000."""
    ms = await _recoveries(bench, SHORTEST_NOTICE_SECONDS)
    return _measured(median(ms), ms)


async def kill_to_elsewhere_shortest_p99_ms(bench: Bench) -> Measured:
    """The 99th percentile of the same kills. At most 2000."""
    ms = await _recoveries(bench, SHORTEST_NOTICE_SECONDS)
    return _measured(quantiles(ms, n=100)[98], ms)


def _measured(value: float, ms: list[float]) -> Measured:
    return Measured(value, min(ms), max(ms), {"runs": len(ms)})


async def _recoveries(bench: Bench, notice_seconds: float) -> list[float]:
    measured: list[float] = await bench.once(f"recovery {notice_seconds}", lambda: _kills(bench, notice_seconds))
    return measured


async def _kills(bench: Bench, notice_seconds: float) -> list[float]:
    database, broker_url = bench.database("bench_recovery"), bench.broker_url
    dice = random.Random(7)
    found: list[float] = []
    async with (
        bench.scheduler(database, broker_url=broker_url, death_notice_seconds=notice_seconds),
        bench.worker(database, broker_url=broker_url) as victim,
        bench.worker(database, broker_url=broker_url) as survivor,
        connect(
            settings=database.settings(broker_url=broker_url), tenant=SCOPE.tenant_id, principal=SCOPE.principal_id
        ) as wakeful,
    ):
        for _ in range(3 if bench.quick else 15):
            runs = await _held_by_the_victim(wakeful, survivor)
            # Out of step with the looks, and long after the victim's connection was seen.
            await asyncio.sleep(dice.uniform(0.5, 1.0))
            began = time.monotonic_ns()
            await asyncio.to_thread(victim.kill)
            asked = [int(await run.result(timeout=60)) for run in runs]
            found += [(at - began) / 1e6 for at in asked]
            await asyncio.to_thread(victim.start)
            await asyncio.to_thread(victim.wait_ready)
    return found


async def _held_by_the_victim(wakeful: Wakeful, survivor: Child) -> list[RunHandle]:
    """Runs that wait in the one worker that was not stopped when they were submitted."""
    os.kill(survivor.pid, signal.SIGSTOP)
    try:
        sessions = [await wakeful.sessions.create(agent=PHOENIX) for _ in range(RUNS_PER_KILL)]
        runs = [await session.submit("now") for session in sessions]
        for run in runs:
            while (await run.read()).started_at is None:  # noqa: ASYNC110 - another process's doing has no signal
                await asyncio.sleep(0.01)
    finally:
        os.kill(survivor.pid, signal.SIGCONT)
    return runs


FIGURES = (
    Figure(kill_to_elsewhere_p50_ms, at_most(5000.0)),
    Figure(kill_to_elsewhere_p99_ms, at_most(5000.0)),
    Figure(kill_to_elsewhere_shortest_p50_ms, at_most(2000.0)),
    Figure(kill_to_elsewhere_shortest_p99_ms, at_most(2000.0)),
)

"""Many runs in one worker process, each waiting for its model."""

import asyncio
import json
from dataclasses import dataclass

from benchmarks.bench import SCOPE, Bench, Database
from benchmarks.figure import Figure, Measured, counted
from benchmarks.process import resident_kib
from benchmarks.sample import LAG, TRIVIAL, WAITING
from wakeful.client import RunHandle, Wakeful, connect

__all__ = ["FIGURES"]

RUNS = 200


@dataclass(frozen=True, slots=True)
class _Found:
    resident_before_kib: float
    resident_with_kib: float
    lag_alone: dict[str, float]
    lag_with: dict[str, float]


async def waiting_run_kib(bench: Bench) -> Measured:
    """Resident memory that a worker process gains by 200 RUNNING runs, each awaiting a model call, divided by 200;
    KiB per run. The process has executed runs before, so that what it loads once is not counted."""
    found = await _found(bench)
    gained = (found.resident_with_kib - found.resident_before_kib) / RUNS
    return counted(gained, resident_before_kib=found.resident_before_kib, resident_with_kib=found.resident_with_kib)


async def loop_lag_p99_ms(bench: Bench) -> Measured:
    """By how much that process's event loop is late for a 10 ms timer while the 200 runs wait: the 99th percentile.
    Beside it the same without them, which is the machine's own."""
    found = await _found(bench)
    return counted(
        found.lag_with["p99_ms"],
        max_ms=found.lag_with["max_ms"],
        p99_without_runs_ms=found.lag_alone["p99_ms"],
        max_without_runs_ms=found.lag_alone["max_ms"],
    )


async def _found(bench: Bench) -> _Found:
    found: _Found = await bench.once("waiting", lambda: _observe(bench))
    return found


async def _observe(bench: Bench) -> _Found:
    database = bench.database("bench_waiting")
    async with (
        bench.worker(database, "--slots", str(RUNS + 8)) as worker,
        connect(settings=database.settings(), tenant=SCOPE.tenant_id, principal=SCOPE.principal_id) as wakeful,
    ):
        for _ in range(2):
            warm = [await _submitted(wakeful, TRIVIAL) for _ in range(RUNS)]
            for run in warm:
                await run.result(timeout=60)
        alone = await _lag(bench, wakeful)
        before = resident_kib(worker.pid)
        for _ in range(RUNS):
            await _submitted(wakeful, WAITING)
        await _all_running(database)
        resident = resident_kib(worker.pid)
        return _Found(before, resident, alone, await _lag(bench, wakeful))


async def _submitted(wakeful: Wakeful, agent: str, **metadata: float) -> RunHandle:
    session = await wakeful.sessions.create(agent=agent)
    return await session.submit("go", metadata=metadata)


async def _lag(bench: Bench, wakeful: Wakeful) -> dict[str, float]:
    run = await _submitted(wakeful, LAG, seconds=2.0 if bench.quick else 8.0)
    measured: dict[str, float] = json.loads(await run.result(timeout=60))
    return measured


async def _all_running(database: Database) -> None:
    """Until every run has written its start: then it asks its model."""
    running = "SELECT count(*) FROM wakeful.runs WHERE agent = %s AND status = 'RUNNING' AND started_at IS NOT NULL"
    with database.administrator() as administrator:
        row = None
        while row is None or row[0] < RUNS:
            await asyncio.sleep(0.5)
            row = administrator.execute(running, [WAITING]).fetchone()
    await asyncio.sleep(1)


FIGURES = (Figure(waiting_run_kib), Figure(loop_lag_p99_ms))

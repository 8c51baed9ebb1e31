"""Trivial runs, from a backlog, end to end."""

import asyncio
from contextlib import AsyncExitStack

from benchmarks.bench import SCOPE, Bench, Database
from benchmarks.figure import Figure, Measured, of_rounds
from benchmarks.sample import TRIVIAL
from wakeful.client import Wakeful, connect

__all__ = ["FIGURES"]

WORKERS = 2
SUBMITTERS = 16

_ENDED = """
SELECT count(*) FILTER (WHERE status = 'COMPLETED'), count(*),
       extract(epoch FROM max(finished_at) - min(started_at))::float8
  FROM wakeful.runs
"""


async def runs_per_second(bench: Bench) -> Measured:
    """Runs of one model turn that two worker processes bring from a backlog of 10,000 to COMPLETED per second: from
    the first start to the last end, each with its events, its checkpoints and its reply in the log."""
    backlog = 500 if bench.quick else 10_000
    database = bench.database("bench_backlog")
    settings = database.settings(app_pool_size=SUBMITTERS)
    async with connect(settings=settings, tenant=SCOPE.tenant_id, principal=SCOPE.principal_id) as wakeful:
        await asyncio.gather(*(_submit(wakeful, backlog // SUBMITTERS) for _ in range(SUBMITTERS)))
    bench.progress.step("queued")
    async with AsyncExitStack() as workers:
        for _ in range(WORKERS):
            await workers.enter_async_context(bench.worker(database))
        seconds, runs = await _until_ended(database)
    return of_rounds([runs / seconds], runs=runs, seconds=seconds)


async def _submit(wakeful: Wakeful, count: int) -> None:
    for _ in range(count):
        session = await wakeful.sessions.create(agent=TRIVIAL)
        await session.submit("go")


async def _until_ended(database: Database) -> tuple[float, int]:
    """By the database's clock, asked seldom."""
    with database.administrator() as administrator:
        while True:
            await asyncio.sleep(0.5)
            row = administrator.execute(_ENDED).fetchone()
            if row and row[0] == row[1]:
                return row[2], row[1]


FIGURES = (Figure(runs_per_second),)

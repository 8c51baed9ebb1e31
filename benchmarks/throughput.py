"""Trivial runs, from a backlog, end to end."""

import asyncio
from contextlib import AsyncExitStack
from uuid import UUID

from benchmarks.backlog import load_sessions
from benchmarks.bench import SCOPE, Bench, Database
from benchmarks.figure import Figure, Measured, of_rounds
from benchmarks.sample import TRIVIAL
from wakeful.domain.runs import Message, Submission
from wakeful.persistence.store import PostgresStore

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
    database = bench.database("bench_backlog")
    sessions = await asyncio.to_thread(_sessions, database, 500 if bench.quick else 10_000)
    async with database.store(connections=SUBMITTERS, event_hints=False) as store:
        await asyncio.gather(*(_submit(store, sessions) for _ in range(SUBMITTERS)))
    bench.progress.step("queued")
    async with AsyncExitStack() as workers:
        for _ in range(WORKERS):
            await workers.enter_async_context(bench.worker(database))
        seconds, runs = await _until_ended(database)
    return of_rounds([runs / seconds], runs=runs, seconds=seconds)


def _sessions(database: Database, count: int) -> list[UUID]:
    """Opened beside the product: only the runs are to be measured."""
    with database.administrator() as administrator:
        load_sessions(administrator, TRIVIAL, count)
        found = administrator.execute("SELECT id FROM wakeful.sessions WHERE agent = %s", [TRIVIAL]).fetchall()
    return [row[0] for row in found]


async def _submit(store: PostgresStore, sessions: list[UUID]) -> None:
    while sessions:
        await store.queue.submit(Submission(SCOPE, sessions.pop(), TRIVIAL, 1, messages=(Message("go"),)))


async def _until_ended(database: Database) -> tuple[float, int]:
    """By the database's clock, asked seldom."""
    with database.administrator() as administrator:
        while True:
            await asyncio.sleep(0.5)
            row = administrator.execute(_ENDED).fetchone()
            if row and row[0] == row[1]:
                return row[2], row[1]


FIGURES = (Figure(runs_per_second),)

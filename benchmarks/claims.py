"""Claiming: the whole cycle against pgbench's, and the latency of one claim with a million runs in the queue."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import count
from statistics import median, quantiles
from uuid import uuid4

from benchmarks.backlog import load_queue, load_runs
from benchmarks.bench import SCOPE, Bench, Database
from benchmarks.figure import Figure, Measured, at_least, at_most, of_rounds
from benchmarks.pgbench import transactions
from benchmarks.rounds import alternate
from wakeful.domain.appends import Append, RunChange
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunCompleted
from wakeful.domain.runs import Claim
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.persistence.store import PostgresStore

__all__ = ["FIGURES"]

WORKERS = 8
BATCH = 10
LEASE = timedelta(seconds=30)

# Every client stays at its own statements, so the queue holds a few more than are taken: none ever finds nothing.
SPARE = WORKERS


def claim_and_complete(agent: str) -> str:
    """Claiming one run, then completing it, each a transaction: no event, no log, nothing but the two updates."""
    owner, tenant = uuid4(), SCOPE.tenant_id
    return f"""
UPDATE wakeful.runs
   SET status = 'RUNNING', lease_owner = '{owner}', lease_epoch = lease_epoch + 1,
       lease_expires_at = clock_timestamp() + interval '30 s', attempts = attempts + 1, updated_at = clock_timestamp()
 WHERE tenant_id = '{tenant}'
   AND id = (SELECT id FROM wakeful.runs
              WHERE status = 'QUEUED' AND priority = 0 AND agent = '{agent}' AND due_at <= statement_timestamp()
              ORDER BY due_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id AS run, lease_epoch AS epoch \\gset
UPDATE wakeful.runs
   SET status = 'COMPLETED', lease_owner = NULL, lease_expires_at = NULL, finished_at = clock_timestamp(),
       updated_at = clock_timestamp()
 WHERE tenant_id = '{tenant}' AND id = :run AND status = 'RUNNING' AND lease_owner = '{owner}'
   AND lease_epoch = :epoch;
"""


async def claim_release_vs_pgbench(bench: Bench) -> Measured:
    """Runs per second that 8 workers claim in batches of ten and complete, each by the guarded append of
    `run.completed`, against 8 pgbench clients that claim one at a time and complete it by a bare UPDATE without any
    event. At least 0.5."""
    database = bench.database("bench_claim")
    each = 40 if bench.quick else 200
    names = count()
    async with database.store(connections=WORKERS, claimers=WORKERS) as store:

        async def ours() -> float:
            agent = await _filled(database, f"ours {next(names)}", each * WORKERS)
            began = time.perf_counter()
            done = await asyncio.gather(*(_work(store, agent) for _ in range(WORKERS)))
            return sum(done) / (time.perf_counter() - began)

        async def theirs() -> float:
            agent = await _filled(database, f"theirs {next(names)}", each * WORKERS + SPARE)
            return await transactions(bench, database, claim_and_complete(agent), clients=WORKERS, each=each)

        return await alternate(
            ours, theirs, rounds=bench.rounds, progress=bench.progress, names=("runs_per_s", "pgbench_per_s")
        )


async def claim_latency_1m_due_vs_1k(bench: Bench) -> Measured:
    """Milliseconds of one claim of one run with 1,000,000 due runs queued, by those with 1,000; medians, taken in
    turn. The rows are those of the next figure, with the claim's `now` moved behind their time. At most 2."""
    return await _latency(bench, now=datetime.now(UTC) + timedelta(days=2))


async def claim_latency_1m_scheduled_vs_1k(bench: Bench) -> Measured:
    """The same with 1,000,000 and with 1,000 runs scheduled for tomorrow, while a few are due. At most 2."""
    return await _latency(bench, now=None)


async def _filled(database: Database, agent: str, runs: int) -> str:
    """A queue of its own per round, so that no round meets what another one left."""

    def fill() -> None:
        with database.administrator() as administrator:
            load_queue(administrator, agent, runs)

    await asyncio.to_thread(fill)
    return agent


async def _work(store: PostgresStore, agent: str) -> int:
    """One worker: claims as long as it gets anything, and completes what it got."""
    owner, done = uuid4(), 0
    while claims := await store.queue.claim(
        owner, capacity={PriorityClass.INTERACTIVE: BATCH}, agents=[agent], lease=LEASE, suspects=8
    ):
        for claim in claims:
            await _complete(store, claim)
        done += len(claims)
    return done


async def _complete(store: PostgresStore, claim: Claim) -> None:
    lease = claim.lease
    ended = NewEvent(RunCompleted(steps=0, tool_calls=0), Actor("worker", str(lease.owner)), run_id=lease.run.run_id)
    await store.log.append(Append(lease.run.session, (ended,), lease=lease, run=RunChange(status=RunStatus.COMPLETED)))


AGENT = "clerk"
DUE = 900
"""Runs that are due in either queue, for the claims of both figures."""


async def _queues(bench: Bench) -> tuple[Database, Database]:
    """A small and a large queue: runs due now, and 1,000 or 1,000,000 for tomorrow."""

    def fill(name: str, later: int) -> Database:
        database = bench.database(name)
        with database.administrator() as administrator:
            load_runs(administrator, AGENT, DUE, later="-1 hour")
            load_runs(administrator, AGENT, later, later="1 day")
        return database

    large = 20_000 if bench.quick else 1_000_000
    bench.progress.step(f"loading {large:,} runs")
    small_queue = await asyncio.to_thread(fill, "bench_queue_small", 1_000)
    return small_queue, await asyncio.to_thread(fill, "bench_queue_large", large)


async def _latency(bench: Bench, *, now: datetime | None) -> Measured:
    small_queue, large_queue = await bench.once("queues", lambda: _queues(bench))
    samples = 50 if bench.quick else 400
    small: list[float] = []
    large: list[float] = []
    async with small_queue.store(claimers=1) as few, large_queue.store(claimers=1) as many:
        for number in range(samples + 20):
            for store, found in ((few, small), (many, large)):
                taken = await _claim_ms(store, now)
                if number >= 20:  # the first ones prepare statements and warm caches
                    found.append(taken)
    chunk = samples // 5
    ratios = [median(large[at : at + chunk]) / median(small[at : at + chunk]) for at in range(0, samples, chunk)]
    return of_rounds(
        ratios,
        p50_ms_1m=median(large),
        p99_ms_1m=quantiles(large, n=100)[98],
        p50_ms_1k=median(small),
        p99_ms_1k=quantiles(small, n=100)[98],
    )


async def _claim_ms(store: PostgresStore, now: datetime | None) -> float:
    began = time.perf_counter()
    claims = await store.queue.claim(
        uuid4(), capacity={PriorityClass.INTERACTIVE: 1}, agents=[AGENT], lease=LEASE, suspects=8, now=now
    )
    taken = time.perf_counter() - began
    if len(claims) != 1:
        raise RuntimeError("a claim found nothing: too few runs are due")
    return taken * 1000


FIGURES = (
    Figure(claim_release_vs_pgbench, at_least(0.5)),
    Figure(claim_latency_1m_due_vs_1k, at_most(2.0)),
    Figure(claim_latency_1m_scheduled_vs_1k, at_most(2.0)),
)

"""Appending: the product's unit of work against pgbench's three statements."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from datetime import timedelta

from benchmarks.bench import SCOPE, Bench, Database
from benchmarks.figure import Figure, Measured, at_least
from benchmarks.leases import hold_runs, sql_run_id, sql_session_id
from benchmarks.pgbench import per_second
from benchmarks.rounds import alternate
from wakeful.domain.appends import Append, RunChange
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.turns import AssistantMessageCreated
from wakeful.domain.ports.event_hints import Watch
from wakeful.domain.runs import Lease
from wakeful.persistence.store import PostgresStore

__all__ = ["FIGURES"]

TEXT = "The order left the warehouse on Monday and should reach you by Thursday. Is there anything else? " * 2
PAYLOAD = AssistantMessageCreated(step=1, content=TEXT)


def three_statements(first: int, last: int, lease: Lease) -> str:
    """The specification's transaction; what it leaves to the schema (tenant, event id, actor) is filled in."""
    tenant, session, run = SCOPE.tenant_id, sql_session_id(":n"), sql_run_id(":n")
    payload = json.dumps(PAYLOAD.model_dump(mode="json"))
    return f"""
\\set n random({first}, {last})
BEGIN;
UPDATE wakeful.sessions
   SET next_event_sequence = next_event_sequence + 1, updated_at = greatest(updated_at, now())
 WHERE tenant_id = '{tenant}' AND id = {session}
RETURNING next_event_sequence - 1 AS sequence \\gset
INSERT INTO wakeful.events (tenant_id, session_id, run_id, sequence, event_id, event_type, payload_schema_version,
       actor_type, actor_id, payload, trace_id, created_at)
VALUES ('{tenant}', {session}, {run}, :sequence, uuidv7(), '{PAYLOAD.TYPE}', {PAYLOAD.VERSION},
       'worker', '{lease.owner}', '{payload}', NULL, now());
UPDATE wakeful.runs SET status = 'RUNNING', updated_at = now()
 WHERE tenant_id = '{tenant}' AND id = {run} AND status = 'RUNNING'
   AND lease_owner = '{lease.owner}' AND lease_epoch = {lease.epoch};
COMMIT;
"""


async def append_1_client_vs_pgbench(bench: Bench) -> Measured:
    """Appends per second of one task through the store (one event, the run updated under its lease) by the
    transactions per second of one pgbench client with the specification's three statements. At least 0.9."""
    return await _against_pgbench(bench, clients=1, sessions=1, first=100)


async def append_64_sessions_vs_pgbench(bench: Bench) -> Measured:
    """The same with 16 tasks of one process against 16 pgbench clients, over 64 sessions at random. At least 0.7."""
    return await _against_pgbench(bench, clients=16, sessions=64, first=200)


async def append_hot_session_vs_pgbench(bench: Bench) -> Measured:
    """The same with 16 tasks against 16 clients, all of them on one session. At least 1.0."""
    return await _against_pgbench(bench, clients=16, sessions=1, first=300)


async def append_batch_gain(bench: Bench) -> Measured:
    """Events per second of one task that appends ten at a time by those of one that appends one at a time.
    At least 5."""
    database = bench.database("bench_append")
    async with database.store(connections=1) as store:
        leases = await hold_runs(store, 400, 1)

        async def ten() -> float:
            return await appends_per_second(store, leases, tasks=1, seconds=bench.seconds, events=10) * 10

        async def one() -> float:
            return await appends_per_second(store, leases, tasks=1, seconds=bench.seconds)

        return await alternate(
            ten, one, rounds=bench.rounds, progress=bench.progress, names=("ten_events_per_s", "single_events_per_s")
        )


async def append_hints_on_vs_off(bench: Bench) -> Measured:
    """Appends per second of 16 tasks on 64 sessions while every session is watched for live hints, by those of a store
    that sends none. At least 0.9."""
    database = bench.database("bench_append")
    async with (
        database.store(connections=16) as hinting,
        database.store(connections=16, event_hints=False) as silent,
    ):
        leases = await hold_runs(hinting, 500, 64)
        watches = [hinting.event_hints.watch(lease.run.session) for lease in leases]

        async def on() -> float:
            return await appends_per_second(hinting, leases, tasks=16, seconds=bench.seconds)

        async def off() -> float:
            return await appends_per_second(silent, leases, tasks=16, seconds=bench.seconds)

        measured = await alternate(
            on, off, rounds=bench.rounds, progress=bench.progress, names=("hints_on_per_s", "hints_off_per_s")
        )
        await _prove_heard(watches[0])
        return measured


async def _prove_heard(watch: Watch) -> None:
    """The watches were listening: nobody waited, so what was said is still there."""
    began = time.perf_counter()
    await watch.wait(timedelta(seconds=1))
    if time.perf_counter() - began > 0.5:
        raise RuntimeError("no hint was heard: the figure would compare nothing")


async def _against_pgbench(bench: Bench, *, clients: int, sessions: int, first: int) -> Measured:
    database = bench.database("bench_append")
    async with database.store(connections=clients) as store:
        leases = await hold_runs(store, first, sessions)
        script = three_statements(first, first + sessions - 1, leases[0])
        _prove(database, leases)

        async def ours() -> float:
            return await appends_per_second(store, leases, tasks=clients, seconds=bench.seconds)

        async def theirs() -> float:
            return await per_second(bench, database, script, clients=clients)

        return await alternate(
            ours, theirs, rounds=bench.rounds, progress=bench.progress, names=("appends_per_s", "pgbench_per_s")
        )


async def appends_per_second(
    store: PostgresStore, leases: Sequence[Lease], *, tasks: int, seconds: float, events: int = 1
) -> float:
    """Appends of `events` events each, by so many tasks at once, each to a random one of the leases' sessions."""
    began = time.perf_counter()
    counts = await asyncio.gather(
        *(_append_until(store, leases, began + seconds, events, random.Random(seed)) for seed in range(tasks))
    )
    return sum(counts) / (time.perf_counter() - began)


async def _append_until(
    store: PostgresStore, leases: Sequence[Lease], end: float, events: int, choice: random.Random
) -> int:
    actor = Actor("worker", str(leases[0].owner))
    done = 0
    while time.perf_counter() < end:
        lease = choice.choice(leases)
        new = tuple(
            NewEvent(AssistantMessageCreated(step=1, content=TEXT), actor, run_id=lease.run.run_id)
            for _ in range(events)
        )
        await store.log.append(Append(lease.run.session, new, lease=lease, run=RunChange(step=done)))
        done += 1
    return done


def _prove(database: Database, leases: Sequence[Lease]) -> None:
    """pgbench counts a guarded UPDATE that found nothing as done: see that ours finds its row."""
    owner, epoch = leases[0].owner, leases[0].epoch
    with database.administrator() as administrator:
        count = "SELECT count(*) FROM wakeful.runs WHERE status = 'RUNNING' AND lease_owner = %s AND lease_epoch = %s"
        found = administrator.execute(count, [owner, epoch]).fetchone()
    if found is None or found[0] != len(leases):
        raise RuntimeError(f"pgbench's guard would find {found} of {len(leases)} runs")


FIGURES = (
    Figure(append_1_client_vs_pgbench, at_least(0.9)),
    Figure(append_64_sessions_vs_pgbench, at_least(0.7)),
    Figure(append_hot_session_vs_pgbench, at_least(1.0)),
    Figure(append_batch_gain, at_least(5.0)),
    Figure(append_hints_on_vs_off, at_least(0.9)),
)

"""Durable steps: what one of them costs, counted on the wire and on the clock."""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from urllib.parse import quote
from uuid import UUID, uuid4

import psycopg
from pydantic import JsonValue

from benchmarks.bench import SCOPE, Bench, Database
from benchmarks.figure import Figure, Measured, at_most, counted, of_rounds
from benchmarks.relay import Traffic, relay
from benchmarks.rounds import alternate
from benchmarks.sample import STEPS, app
from wakeful.bootstrap.apps import catalogue_of
from wakeful.domain.events.turns import ModelResponseCompleted
from wakeful.domain.ids import new_id
from wakeful.domain.runs import Budget, Submission
from wakeful.domain.scopes import SessionRef
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import PriorityClass
from wakeful.embedded.postgres import SOCKET_NAME, SOCKET_PORT
from wakeful.persistence.store import PostgresStore
from wakeful.runtime.executor import Executor
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

__all__ = ["FIGURES"]

RUN_OF = 100
SHORT_RUN_OF = 20
TURNS, PART = 200, 20


@dataclass(frozen=True, slots=True)
class _PerStep:
    commits: float
    round_trips: float


async def step_commits(bench: Bench) -> Measured:
    """Commits per step with one tool call, counted in the protocol between executor and server: the difference
    between a run of 100 steps and one of 20, so that starting and ending do not count. Live hints are off: they go out
    by time, not by step."""
    return counted((await _counted(bench)).commits)


async def step_round_trips(bench: Bench) -> Measured:
    """Round trips per step, counted likewise."""
    return counted((await _counted(bench)).round_trips)


async def step_vs_bare_commits(bench: Bench) -> Measured:
    """Time per step of a run of 100 steps with one tool call each, by the time of as many bare one-row commits (the
    same driver, one prepared INSERT each) as a step makes."""
    measured: Measured = await bench.once("step times", lambda: _timed(bench))
    return measured


async def step_ms(bench: Bench) -> Measured:
    """Milliseconds per step of the same runs: turn, intent and result, each committed. At most 1.3."""
    measured: Measured = await bench.once("step times", lambda: _timed(bench))
    bare = measured.parts["bare_commits_of_a_step_ms"]
    return Measured(measured.parts["step_ms"], measured.low * bare, measured.high * bare)


async def late_turns_vs_early(bench: Bench) -> Measured:
    """Time of the last 20 turns of a run of 200 by that of its first 20, with a message of 1 KiB and a tool call each:
    what the length of a conversation costs. At most 1.1."""
    database = bench.database("bench_steps")
    ratios, lasts, firsts = [], [], []
    async with database.store(connections=2) as store:
        await _warm(store)
        for _ in range(bench.rounds):
            times = await _turn_times(store, TURNS)
            first, last = times[PART] - times[0], times[-1] - times[-1 - PART]
            ratios.append(last / first)
            lasts.append(last)
            firsts.append(first)
            bench.progress.step(f"{ratios[-1]:.2f}")
    return of_rounds(ratios, last_turn_ms=median(lasts) / PART * 1000, first_turn_ms=median(firsts) / PART * 1000)


async def _turn_times(store: PostgresStore, turns: int) -> list[float]:
    """When each turn of a run was committed, by the database's clock, in seconds."""
    session = SessionRef(SCOPE.tenant_id, new_id())
    await _execute(store, turns, content_bytes=1024, session_id=session.session_id)
    events = await store.log.read(session, types=[ModelResponseCompleted.TYPE])
    return [event.created_at.timestamp() for event in events]


async def _counted(bench: Bench) -> _PerStep:
    counts: _PerStep = await bench.once("step counts", lambda: _count(bench))
    return counts


async def _count(bench: Bench) -> _PerStep:
    database = bench.database("bench_steps")
    folder = bench.folder / "relay"
    folder.mkdir()
    async with AsyncExitStack() as opened:
        traffic = await opened.enter_async_context(relay(folder, _socket(bench)))
        relayed = Database(
            database.name,
            f"postgresql://wakeful@/{database.name}?host={quote(str(folder), safe='')}&port={SOCKET_PORT}",
        )
        store = await opened.enter_async_context(relayed.store(connections=2, event_hints=False))
        await _warm(store)
        short, long = [await _traffic_of(store, traffic, steps) for steps in (SHORT_RUN_OF, RUN_OF)]
    steps = RUN_OF - SHORT_RUN_OF
    return _PerStep((long.commits - short.commits) / steps, (long.round_trips - short.round_trips) / steps)


def _socket(bench: Bench) -> Path:
    with psycopg.connect(bench.postgres.dsn()) as connection:
        return Path(connection.info.host) / SOCKET_NAME


async def _traffic_of(store: PostgresStore, traffic: Traffic, steps: int) -> Traffic:
    commits, round_trips = traffic.commits, traffic.round_trips
    await _execute(store, steps)
    return Traffic(commits=traffic.commits - commits, round_trips=traffic.round_trips - round_trips)


async def _timed(bench: Bench) -> Measured:
    commits = (await _counted(bench)).commits
    database = bench.database("bench_steps")
    with database.administrator() as administrator:
        administrator.execute("CREATE TABLE IF NOT EXISTS public.bare (number integer)")
    async with AsyncExitStack() as opened:
        store = await opened.enter_async_context(database.store(connections=2))
        bare = await opened.enter_async_context(await psycopg.AsyncConnection.connect(database.dsn, autocommit=True))
        await _warm(store)

        async def ours() -> float:
            return await _execute(store, RUN_OF) / RUN_OF * 1000

        async def theirs() -> float:
            began = time.perf_counter()
            for number in range(RUN_OF):
                await bare.execute("INSERT INTO public.bare VALUES (%s)", [number], prepare=True)
            return (time.perf_counter() - began) / RUN_OF * commits * 1000

        return await alternate(
            ours,
            theirs,
            rounds=bench.rounds,
            progress=bench.progress,
            names=("step_ms", "bare_commits_of_a_step_ms"),
        )


async def _warm(store: PostgresStore) -> None:
    """Open connections, and execute every statement often enough that the driver has prepared it."""
    for _ in range(4):
        await _execute(store, 2)


async def _execute(
    store: PostgresStore, steps: int, *, content_bytes: int = 0, session_id: UUID | None = None
) -> float:
    """Seconds that the executor takes for a run of so many steps with a call each, from claimed to completed."""
    session_id = session_id or new_id()
    await store.sessions.create(NewSession(SCOPE, STEPS, session_id=session_id))
    metadata: dict[str, JsonValue] = {"steps": steps, "content_bytes": content_bytes}
    await store.queue.submit(Submission(SCOPE, session_id, STEPS, 1, budget=Budget(max_steps=None), metadata=metadata))
    (claim,) = await store.queue.claim(
        uuid4(),
        capacity={PriorityClass.INTERACTIVE: 1},
        agents=[STEPS],
        lease=timedelta(minutes=10),
        suspects=0,
    )
    executor = Executor(log=store.log, queue=store.queue, sessions=store.sessions, catalogue=catalogue_of(app))
    began = time.perf_counter()
    ending = await executor.execute(Holding(claim, trusted_until=time.monotonic() + 600))
    taken = time.perf_counter() - began
    if ending is not Ending.COMPLETED:
        raise RuntimeError(f"the run ended as {ending}")
    return taken


FIGURES = (
    Figure(step_commits),
    Figure(step_round_trips),
    Figure(step_vs_bare_commits),
    Figure(step_ms, at_most(1.3)),
    Figure(late_turns_vs_early, at_most(1.1)),
)

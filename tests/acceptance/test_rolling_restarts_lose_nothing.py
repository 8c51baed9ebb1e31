"""Workers restarted one after the other under load, at any moment: every run completes, none is counted as a crash."""

import asyncio
import random
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.database import Database
from support.processes import Machine, machine, until_fact

from wakeful.client import RunHandle, RunStatus, Wakeful
from wakeful.domain.events.runs import RunRequeued
from wakeful.domain.states import InvocationStatus

pytestmark = pytest.mark.anyio

AT_ONCE = 12
"""Runs in flight: more than one worker executes."""
LONGEST_MOMENT = 1.0
ORDERLY = 0.6
"""How often a worker is stopped only when its successor serves; else in any state, starting included."""
DONE = 120.0


@pytest.fixture
def machines(database: Database, tmp_path: Path) -> Iterator[Machine]:
    with machine(database, tmp_path, slots="8") as made:
        yield made


@pytest.mark.timeout(120)
async def test_a_few_restarts(machines: Machine, wakeful: Wakeful) -> None:
    await rolling_restarts(machines, wakeful, restarts=4, seed=7)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_hundred_restarts(machines: Machine, wakeful: Wakeful) -> None:
    await rolling_restarts(machines, wakeful, restarts=100, seed=8)


async def rolling_restarts(machines: Machine, wakeful: Wakeful, *, restarts: int, seed: int) -> None:
    dice = random.Random(seed)
    machines.scheduler()
    workers = [machines.worker(), machines.worker()]
    rolled = asyncio.Event()
    load = asyncio.create_task(errands(wakeful, rolled))
    try:
        for _ in range(restarts):
            workers.append(machines.starting_worker())
            if dice.random() < ORDERLY:
                await until_fact(partial(serves, machines, workers[-1]), "its successor serves")
            # The moment of the signal is what this is about: any, also one before the process is ready.
            await asyncio.sleep(dice.uniform(0, LONGEST_MOMENT))
            await drained(machines, workers.pop(0))
    finally:
        rolled.set()
        runs = await load
    handed_back = 0
    for run in runs:
        row = await run.wait(timeout=DONE)
        assert (row.status, row.lease_expirations, row.attempt_failures) == (RunStatus.COMPLETED, 0, ())
        assert {call.status for call in await run.all_calls()} == {InvocationStatus.COMPLETED}
        bought = [word for word in machines.notes(run.ref.session_id) if word.startswith("bought")]
        assert len(bought) == len(set(bought)) == 2
        handed_back += sum(is_drain(event.payload) for event in await run.history())
    assert handed_back >= restarts // 2, "hardly any restart hit a run"


async def errands(wakeful: Wakeful, rolled: asyncio.Event) -> list[RunHandle]:
    """Keep so many runs in flight until everything was restarted."""
    runs: list[RunHandle] = []

    async def one_after_another() -> None:
        while not rolled.is_set():
            session = await wakeful.sessions.create(agent="errand")
            run = await session.submit("go")
            runs.append(run)
            await run.wait(timeout=DONE)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_another())
    return runs


async def drained(machines: Machine, worker: "subprocess.Popen[bytes]") -> None:
    worker.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(worker.wait, 60)
    # Before it serves, a process that still loads its code has nothing to hand back.
    assert code == 0 or (code == -signal.SIGTERM and not serves(machines, worker)), machines.log()


def serves(machines: Machine, worker: "subprocess.Popen[bytes]") -> bool:
    return f"(pid {worker.pid})" in machines.log()


def is_drain(payload: object) -> bool:
    return isinstance(payload, RunRequeued) and payload.reason == "drain"

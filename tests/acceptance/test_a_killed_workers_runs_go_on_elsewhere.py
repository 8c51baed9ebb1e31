"""A killed worker's runs go on elsewhere long before their lease ends; a frozen worker's go on when it does."""

import os
import signal
import subprocess

import pytest
from support.processes import Machine, until_fact

from wakeful.client import RunHandle, RunStatus, Wakeful
from wakeful.domain.states import InvocationStatus

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.gate("crash_recovery")]

LONG = {"lease_seconds": "600"}
"""No test waits for this: what goes on within it was taken from a worker known to be dead."""
DONE = 120.0


async def started(machines: Machine, wakeful: Wakeful, agent: str, word: str) -> RunHandle:
    session = await wakeful.sessions.create(agent=agent)
    run = await session.submit("go")
    await until_fact(lambda: word in machines.notes(run.ref.session_id), f"{word} in {machines.log()}")
    return run


def pids(machines: Machine, run: RunHandle, word: str) -> list[int]:
    """The processes that noted `word`, in order."""
    lines = (machines.folder / str(run.ref.session_id)).read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.split()[0] == word]


def killed(worker: "subprocess.Popen[bytes]") -> None:
    worker.kill()
    worker.wait()


async def test_with_a_long_lease_a_killed_workers_runs_are_executed_elsewhere_and_counted_once(
    machines: Machine, wakeful: Wakeful
) -> None:
    machines.scheduler(**LONG)
    machines.scheduler(**LONG)
    first = machines.worker(**LONG)
    runs = [await started(machines, wakeful, "gate", "waiting") for _ in range(3)]
    paying = await started(machines, wakeful, "pay", "paying")
    second = machines.worker(**LONG)
    killed(first)
    for run in runs:
        await until_fact(lambda run=run: len(pids(machines, run, "waiting")) > 1, "it waits in the other worker")  # type: ignore[misc]
        # A suspect is executed in a process of its own, until it has taken a step.
        assert pids(machines, run, "waiting")[0] == first.pid
    machines.open_gate()
    for run in (*runs, paying):
        done = await run.wait(timeout=DONE)
        assert (done.status, done.lease_expirations) == (RunStatus.COMPLETED, 1)
        assert [failure["reason"] for failure in done.attempt_failures] == ["worker_died"]
    assert [call.status for call in await paying.all_calls()] == [InvocationStatus.UNCERTAIN]
    assert machines.notes(paying.ref.session_id) == ["paying"]
    assert second.poll() is None


async def test_a_frozen_worker_is_not_dead_before_its_lease_ends_and_writes_nothing_when_it_wakes(
    machines: Machine, wakeful: Wakeful
) -> None:
    short = {"lease_seconds": "4", "death_notice_seconds": "0.5"}
    machines.scheduler(**short)
    first = machines.worker(**short)
    run = await started(machines, wakeful, "gate", "waiting")
    os.kill(first.pid, signal.SIGSTOP)
    machines.worker(**short)
    await until_fact(lambda: len(pids(machines, run, "waiting")) > 1, "it waits in the other worker")
    crashed = await run.read()
    assert [failure["reason"] for failure in crashed.attempt_failures] == ["lease_expired"]
    os.kill(first.pid, signal.SIGCONT)
    machines.open_gate()
    done = await run.wait(timeout=DONE)
    assert (done.status, done.lease_expirations) == (RunStatus.COMPLETED, 1)
    assert len([call for call in await run.all_calls() if call.status is InvocationStatus.COMPLETED]) == 1


async def test_a_signal_before_a_worker_is_ready_hands_back_what_it_took_up(
    machines: Machine, wakeful: Wakeful
) -> None:
    session = await wakeful.sessions.create(agent="gate")
    run = await session.submit("go")
    worker = machines.starting_worker(**LONG)
    await until_fact(lambda: "waiting" in machines.notes(run.ref.session_id), "the run is taken up")
    worker.terminate()
    assert worker.wait(60) == 0
    left = await run.read()
    assert (left.status, left.lease_expirations) == (RunStatus.QUEUED, 0)

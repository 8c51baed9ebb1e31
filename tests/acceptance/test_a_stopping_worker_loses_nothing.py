"""SIGTERM hands runs back uncounted, a second signal or SIGKILL is what leases are for."""

import os
import signal
import socket
import subprocess

import pytest
from support.processes import Machine, until_fact

from wakeful.actors.queues import wake_queue
from wakeful.client import RunHandle, RunStatus, Wakeful
from wakeful.domain.states import InvocationStatus, PriorityClass

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SHORT = {"lease_seconds": "2", "drain_grace_seconds": "1"}
DONE = 120.0


async def submit(wakeful: Wakeful, agent: str, priority: str = "interactive") -> RunHandle:
    session = await wakeful.sessions.create(agent=agent)
    return await session.submit("go", priority=priority)


async def noted(machines: Machine, run: RunHandle, word: str) -> None:
    session = (await run.read()).ref.session_id
    await until_fact(lambda: word in machines.notes(session), f"{word} in {machines.log()}")


async def notes(machines: Machine, run: RunHandle) -> list[str]:
    return machines.notes((await run.read()).ref.session_id)


def ended(process: "subprocess.Popen[bytes]") -> int:
    return process.wait(60)


async def test_a_drained_run_is_handed_back_uncounted_and_finished_elsewhere(
    machines: Machine, wakeful: Wakeful
) -> None:
    first = machines.worker()
    run = await submit(wakeful, "gate")
    await noted(machines, run, "waiting")
    first.terminate()
    assert ended(first) == 0
    left = await run.read()
    assert (left.status, left.lease_expirations, left.suspect) == (RunStatus.QUEUED, 0, False)
    machines.worker()
    machines.open_gate()
    assert (await run.wait(timeout=DONE)).status is RunStatus.COMPLETED
    assert (await run.read()).lease_expirations == 0


async def test_a_drain_waits_for_a_call_that_must_not_be_cut_off(machines: Machine, wakeful: Wakeful) -> None:
    worker = machines.worker()
    run = await submit(wakeful, "pay")
    await noted(machines, run, "paying")
    worker.terminate()
    machines.open_gate()
    assert ended(worker) == 0
    assert await notes(machines, run) == ["paying", "paid"]
    assert (await run.read()).lease_expirations == 0
    machines.worker()
    assert (await run.wait(timeout=DONE)).status is RunStatus.COMPLETED
    assert await notes(machines, run) == ["paying", "paid"]


async def test_a_call_that_outlasts_the_grace_is_uncertain_elsewhere_and_never_repeated(
    machines: Machine, wakeful: Wakeful
) -> None:
    worker = machines.worker(**SHORT)
    run = await submit(wakeful, "pay")
    await noted(machines, run, "paying")
    worker.terminate()
    assert ended(worker) == 0
    machines.scheduler(**SHORT)
    machines.worker(**SHORT)
    assert (await run.wait(timeout=DONE)).status is RunStatus.COMPLETED
    assert [call.status for call in await run.all_calls()] == [InvocationStatus.UNCERTAIN]
    assert await notes(machines, run) == ["paying"]
    assert (await run.read()).lease_expirations == 1


async def test_a_second_signal_ends_the_process_at_once(machines: Machine, wakeful: Wakeful) -> None:
    worker = machines.worker()
    run = await submit(wakeful, "pay")
    await noted(machines, run, "paying")
    worker.terminate()
    os.kill(worker.pid, signal.SIGINT)
    assert ended(worker) in {128 + signal.SIGINT, 128 + signal.SIGTERM}
    assert (await run.read()).status is RunStatus.RUNNING


async def test_a_killed_workers_run_is_finished_by_another_with_two_schedulers_at_once(
    machines: Machine, wakeful: Wakeful
) -> None:
    first = machines.worker(**SHORT)
    run = await submit(wakeful, "gate")
    await noted(machines, run, "waiting")
    first.kill()
    ended(first)
    machines.open_gate()
    machines.scheduler(**SHORT)
    machines.scheduler(**SHORT)
    machines.worker(**SHORT)
    assert (await run.wait(timeout=DONE)).status is RunStatus.COMPLETED
    assert (await run.read()).lease_expirations == 1


async def test_a_tool_that_blocks_the_loop_for_two_leases_keeps_its_run(machines: Machine, wakeful: Wakeful) -> None:
    machines.scheduler(**SHORT)
    machines.worker(**SHORT)
    run = await submit(wakeful, "block")
    assert (await run.wait(timeout=DONE)).status is RunStatus.COMPLETED
    assert (await run.read()).lease_expirations == 0
    assert await notes(machines, run) == ["blocking", "done"]


async def test_without_a_broker_from_the_start_runs_finish_at_poll_speed(machines: Machine, wakeful: Wakeful) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    machines.worker(broker_url=f"redis://127.0.0.1:{port}/0")
    for priority in PriorityClass:
        run = await submit(wakeful, "quick", priority=priority.label)
        assert (await run.wait(timeout=DONE)).status is RunStatus.COMPLETED
    assert machines.started[0].poll() is None


async def test_the_dramatiq_command_serves_the_classes_of_its_queues_and_drains(
    machines: Machine, wakeful: Wakeful, valkey: str
) -> None:
    command = machines.dramatiq(wake_queue(PriorityClass.INTERACTIVE), broker_url=valkey)
    other = await submit(wakeful, "quick", priority="maintenance")
    run = await submit(wakeful, "quick")
    assert (await run.wait(timeout=DONE)).status is RunStatus.COMPLETED
    assert (await other.read()).status is RunStatus.QUEUED
    slow = await submit(wakeful, "gate")
    await noted(machines, slow, "waiting")
    command.terminate()
    assert ended(command) == 0
    left = await slow.read()
    assert (left.status, left.lease_expirations) == (RunStatus.QUEUED, 0)


@pytest.mark.parametrize(
    ("queues", "settings", "code", "says"),
    [
        (["other"], {}, 2, "names no wake queue"),
        ([wake_queue(PriorityClass.ASYNC)], {"app": "no_such_module"}, 2, "no_such_module"),
        ([wake_queue(PriorityClass.ASYNC)], {"broker_url": ""}, 2, "WAKEFUL_BROKER_URL"),
        ([wake_queue(PriorityClass.ASYNC)], {"database_url": "postgresql://127.0.0.1:1/none"}, 3, "worker.not_started"),
    ],
)
async def test_the_dramatiq_command_ends_when_it_cannot_serve(
    machines: Machine, valkey: str, queues: list[str], settings: dict[str, str], code: int, says: str
) -> None:
    command = machines.dramatiq(*queues, **{"broker_url": valkey, **settings})
    assert ended(command) == code
    assert says in machines.log()

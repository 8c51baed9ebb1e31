"""Runs that take their process along, in every way: FAILED after exactly their allowance, and nobody else is hit."""

import pytest
from support.processes import Machine, until_fact

from wakeful.client import RunHandle, RunStatus, Wakeful

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.spec("QUE-6")]

POISON = {
    "poison": ("", "exited with status 3"),
    "segfault": ("touching", "exited with signal 11"),
    "overflow": ("recursing", "exited with signal 11"),
    "hog": ("eating", "exited with signal 9"),
    "deaf": ("deaf", "exited with status 4"),
}
"""What each says before it waits for the others, and what its process ends with."""
BESIDE, FRESH = 3, 5
"""Neighbours that were executing when the first worker died, and neighbours of the second one alone."""
DONE = 120.0


async def started(machines: Machine, wakeful: Wakeful, agent: str, word: str) -> RunHandle:
    session = await wakeful.sessions.create(agent=agent)
    run = await session.submit("go")
    await until_fact(lambda: word in machines.notes(run.ref.session_id), f"{agent} is under way")
    return run


async def test_every_kind_of_poison_dies_alone(machines: Machine, wakeful: Wakeful) -> None:
    """The first process of a poison run is the worker, which dies of it with everything it executes: here of the one
    that exits, with all the others. From then on each is alone."""
    machines.scheduler()
    first = machines.worker()
    poison = {agent: await started(machines, wakeful, agent, word) for agent, (word, _) in POISON.items() if word}
    beside = [await started(machines, wakeful, "gate", "waiting") for _ in range(BESIDE)]
    poison["poison"] = await (await wakeful.sessions.create(agent="poison")).submit("go")
    assert first.wait(60) == 3
    second = machines.worker()
    fresh = [await started(machines, wakeful, "gate", "waiting") for _ in range(FRESH)]
    (machines.folder / "armed").touch()
    for agent, run in poison.items():
        failed = await run.wait(timeout=DONE)
        assert (failed.status, failed.lease_expirations, failed.attempts) == (RunStatus.FAILED, 3, 3), agent
        assert failed.failure is not None
        assert failed.failure.code == "max_attempts_exceeded"
        reasons = [attempt["reason"] for attempt in failed.failure.attempts]
        assert reasons == ["worker_died", POISON[agent][1], POISON[agent][1]]
        assert len(machines.notes(run.ref.session_id)) == 3
    assert second.poll() is None
    machines.open_gate()
    for crashes, runs in ((1, beside), (0, fresh)):
        for run in runs:
            done = await run.wait(timeout=DONE)
            assert (done.status, done.lease_expirations) == (RunStatus.COMPLETED, crashes)

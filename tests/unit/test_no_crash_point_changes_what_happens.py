"""A worker dies before or after every append of every run shape: same end, each effect at most once."""

import asyncio

import pytest
from support.runs import Crash, CrashingLog, Office
from support.shapes import SCRIPTS, answer, build, checked

from wakeful.domain.scopes import RunRef
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = pytest.mark.anyio


async def to_the_end(place: Office, ref: RunRef) -> None:
    """Work, answer what waits, let leases lapse, until the run has ended."""
    for _ in range(20):
        await place.sweep()
        await place.work()
        await answer(place, ref)
        if (await place.run(ref)).status.terminal:
            return
        await place.expire_leases()
    raise AssertionError(f"the run never ended: {await place.run(ref)}")


async def crash_once(place: Office, ref: RunRef, at: int, *, after: bool) -> bool:
    """Work with a log that dies at its n-th append; False when the run ended before that."""
    log = CrashingLog(place.store.log, crash_at=at, after=after)
    for _ in range(20):
        work = asyncio.ensure_future(place.work(log))
        try:
            await work
        except Crash:
            await place.expire_leases()
            return True
        await answer(place, ref)
        if (await place.run(ref)).status.terminal:
            return False
    raise AssertionError("neither a crash nor an end")


@pytest.mark.spec("REC-1", "REC-2", "REC-3", "REC-4", "REC-7", "REC-8")
@pytest.mark.gate("crash_recovery")
@pytest.mark.parametrize("lose", [False, True], ids=["with_checkpoints", "without_checkpoints"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("shape", SCRIPTS)
async def test_a_crash_at_any_append_leads_to_the_same_end(shape: str, after: bool, lose: bool) -> None:
    for at in range(1, 40):
        place, effects = build()
        ref = await place.submit(shape, "Go")
        if not await crash_once(place, ref, at, after=after):
            assert at > 3, "the run is too short to prove anything"
            return
        if lose:
            await place.store.checkpoints.drop(ref)
        await to_the_end(place, ref)
        run = await place.run(ref)
        assert run.status is RunStatus.COMPLETED, (at, run.failure)
        turns = checked(await place.conversation(ref))
        assert len(turns) == len(SCRIPTS[shape])
        assert max(effects.values(), default=0) <= 1, at
        for each in await place.calls(ref):
            if each.tool in ("pay", "refund") and each.status is InvocationStatus.COMPLETED:
                assert effects[each.idempotency_key] == 1
            if each.tool == "store":
                assert each.status is InvocationStatus.COMPLETED
        types = await place.types(ref)
        assert types.count("run.completed") == 1
        assert run.lease_expirations <= 1
    raise AssertionError("the run never ended by itself")

"""At every interruption of every run shape, losing any suffix of the checkpoints changes nothing but time."""

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from support.runs import Crash, CrashingLog, Office
from support.shapes import SCRIPTS, answer, build, checked

from wakeful.domain.checkpoints import DELTAS_MAX
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import RunStatus

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class End:
    """What a run comes to. Keys differ from run to run, so effects are counted."""

    status: RunStatus
    step: int
    tool_call_count: int
    said: list[tuple[str, list[tuple[str, str]]]]
    effects: list[int]


async def end_of(place: Office, ref: RunRef, effects: Counter[str]) -> End:
    run = await place.run(ref)
    turns = checked(await place.conversation(ref))
    said = [(str(t.content), [(r.call.tool, r.result.code if r.result else "") for r in t.calls]) for t in turns]
    return End(run.status, run.step, run.tool_call_count, said, sorted(effects.values()))


async def to_the_end(place: Office, ref: RunRef, effects: Counter[str]) -> End:
    for _ in range(20):
        await place.sweep()
        await place.work()
        await answer(place, ref)
        if (await place.run(ref)).status.terminal:
            return await end_of(place, ref, effects)
        await place.expire_leases()
    raise AssertionError("the run never ended")


async def interrupted(shape: str, at: int) -> tuple[Office, RunRef, Counter[str]] | None:
    """A run whose worker died right after its n-th append; None when it ended before that."""
    place, effects = build()
    ref = await place.submit(shape, "Go")
    log = CrashingLog(place.store.log, crash_at=at, after=True)
    for _ in range(20):
        try:
            await asyncio.ensure_future(place.work(log))
        except Crash:
            if (await place.run(ref)).status.terminal:
                return None
            await place.expire_leases()
            return place, ref, effects
        await answer(place, ref)
        if (await place.run(ref)).status.terminal:
            return None
    raise AssertionError("neither a crash nor an end")


def known(end: End) -> tuple[RunStatus, int, int, list[tuple[str, list[str]]]]:
    """What a crash may not change: all but whether a call that was under way is known to have happened."""
    return end.status, end.step, end.tool_call_count, [(text, [tool for tool, _ in each]) for text, each in end.said]


@pytest.mark.spec("CKP-4", "REC-1", "REC-2", "REC-3")
@pytest.mark.gate("checkpoint_dispensable")
@pytest.mark.parametrize("shape", [shape for shape in SCRIPTS if shape != "refused"])
async def test_deleting_any_suffix_of_the_checkpoints_leads_to_the_same_end(shape: str) -> None:
    undisturbed, effects = build()
    wanted = await to_the_end(undisturbed, await undisturbed.submit(shape, "Go"), effects)
    assert wanted.status is RunStatus.COMPLETED
    at, most, points = 0, 0, 0
    while (found := await interrupted(shape, at := at + 1)) is not None:
        points += 1
        place, ref, effects = found
        kept = await to_the_end(place, ref, effects)
        assert known(kept) == known(wanted), at
        for newest in range(1, DELTAS_MAX):
            again = await interrupted(shape, at)
            assert again is not None
            place, ref, effects = again
            found_there = await place.store.checkpoints.drop(ref, newest=newest)
            assert await to_the_end(place, ref, effects) == kept, (at, newest)
            most = max(most, found_there)
            if found_there < newest:
                break
    assert points > 3, "the run is too short to prove anything"
    assert most > 1, "there was never more than one checkpoint to lose"

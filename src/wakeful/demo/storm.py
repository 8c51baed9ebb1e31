"""The first scene: the same conversations in peace and under faults."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from wakeful.demo.acting import Played, history, play
from wakeful.demo.desk import effect
from wakeful.demo.display import Stagehand, live_table
from wakeful.demo.stage import Stage
from wakeful.demo.stories import STORIES
from wakeful.demo.timeline import timeline
from wakeful.domain.runs import Run
from wakeful.domain.states import IdempotencyClass, InvocationStatus, RunStatus
from wakeful.faults.replay.normal_form import first_difference

__all__ = ["first_scene"]

KILLS = 2
BETWEEN_KILLS_SECONDS = 3.0
STEP_SECONDS = 0.1
WORTH_A_KILL = 2
ROUNDS = 3


async def first_scene(stage: Stage) -> None:
    """Play all stories twice and judge the second play by the first."""
    calm: list[Played] = []
    title = f"{len(STORIES)} conversations, undisturbed"
    async with live_table(title, stage.parts, stage.scope, calm, Stagehand(), stage.console):
        await play(stage.wakeful, STORIES, calm)
    rounds = [await _disturbed(stage)]
    while not _hit(stage) and len(rounds) < ROUNDS:
        # On a machine that is busy enough everybody may be done before anybody was killed.
        rounds.append(await _disturbed(stage))
    storm = [played for cast in rounds for played in cast]
    hardest = max(storm, key=_hardship)
    events = [event async for event in hardest.run.events()]
    stage.console.print(timeline(f"One of them, as the log tells it: {hardest.story.name}", events, stage.worker))
    _judge_faults(stage)
    _judge_ends_and_effects(stage, [*calm, *storm])
    await _judge_histories(stage, calm, rounds)


async def _disturbed(stage: Stage) -> list[Played]:
    """One round under faults."""
    storm: list[Played] = []
    title, stagehand = "The same again: workers killed, broker emptied, checkpoints deleted", Stagehand()
    async with live_table(title, stage.parts, stage.scope, storm, stagehand, stage.console):
        await _play_disturbed(stage, storm, stagehand)
    return storm


async def _play_disturbed(stage: Stage, storm: list[Played], stagehand: Stagehand) -> None:
    playing = asyncio.create_task(play(stage.wakeful, STORIES, storm))
    disturbing = asyncio.create_task(_disturb(stage, stagehand))
    try:
        # A fault that cannot be made is no reason to go on as if it had been.
        await asyncio.wait({playing, disturbing}, return_when=asyncio.FIRST_COMPLETED)
        if disturbing.done():
            disturbing.result()
        await playing
    finally:
        playing.cancel()
        disturbing.cancel()
        await asyncio.gather(playing, disturbing, return_exceptions=True)


async def _disturb(stage: Stage, stagehand: Stagehand) -> None:
    kills, next_kill, loop = 0, 0.0, asyncio.get_running_loop()

    async def may(held: Sequence[Run]) -> bool:
        return len(held) >= WORTH_A_KILL and not await _in_unrepeatable_call(stage, held)

    while True:
        await asyncio.sleep(STEP_SECONDS)
        if kills < KILLS and loop.time() > next_kill and (kill := await stage.chaos.kill_worker(may)) is not None:
            kills, next_kill = kills + 1, loop.time() + BETWEEN_KILLS_SECONDS
            stagehand.tell(f"SIGKILL of {kill.worker} (pid {kill.pid}), which was executing {len(kill.runs)} runs")
        await stage.chaos.flush_broker()
        if deleted := await stage.chaos.lose_checkpoints():
            stagehand.tell(f"deleted {deleted} checkpoint(s) of a running conversation")


async def _in_unrepeatable_call(stage: Stage, held: Sequence[Run]) -> bool:
    """Whether a call that must not be repeated is under way in one of the runs: that is the second scene."""
    invocations = stage.parts.store.runs.invocations
    calls = chain.from_iterable(await asyncio.gather(*(invocations(stage.scope, run.ref.run_id) for run in held)))
    return any(
        call.status is InvocationStatus.RUNNING and call.idempotency_class is IdempotencyClass.NON_IDEMPOTENT
        for call in calls
    )


def _hit(stage: Stage) -> bool:
    counts = stage.chaos.counts
    return counts.runs_hit > 0 and counts.checkpoints_deleted > 0 and counts.broker_flushes > 0


def _judge_faults(stage: Stage) -> None:
    counts = stage.chaos.counts
    stage.verdict.claim(
        _hit(stage),
        "The faults hit something",
        f"{counts.kills} kills hit {counts.runs_hit} runs, {counts.checkpoints_deleted} checkpoints were deleted, "
        f"the broker was emptied {counts.broker_flushes} times",
    )


def _judge_ends_and_effects(stage: Stage, cast: list[Played]) -> None:
    ended = Counter(each.ended.status for each in cast if each.ended)
    stage.verdict.claim(
        ended == {RunStatus.COMPLETED: len(cast)},
        "Every run reached its end",
        ", ".join(f"{number} {status.value}" for status, number in ended.items()),
    )
    expected = Counter(effect(each.session.id, what) for each in cast for what in each.story.effects)
    what = "Every effect in the outside ledger happened exactly once"
    stage.verdict.claim_effects(what, expected, stage.ledger.read().counts())


async def _judge_histories(stage: Stage, calm: list[Played], rounds: list[list[Played]]) -> None:
    different = []
    for one, other in ((one, other) for cast in rounds for one, other in zip(calm, cast, strict=True)):
        where = first_difference(await history(stage.parts, one), await history(stage.parts, other))
        if where is not None:
            different.append(f"{one.story.name}: {where}")
    compared = len(calm) * len(rounds)
    stage.verdict.claim(
        not different,
        "Every history equals that of the undisturbed run",
        "; ".join(different) or f"{compared} of {compared}",
    )


def _hardship(played: Played) -> tuple[int, int]:
    return (played.ended.lease_expirations, played.ended.step) if played.ended else (0, 0)

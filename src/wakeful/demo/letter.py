"""The second scene: a crash inside a call that must not be repeated, and how a person resolves it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from wakeful.demo.acting import Played, attend, history, submit
from wakeful.demo.desk import effect
from wakeful.demo.stage import Stage
from wakeful.demo.stories import FOLLOW_UP, LETTER
from wakeful.domain.errors import Timeout
from wakeful.domain.runs import Run
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.faults.chaos import Kill

__all__ = ["second_scene"]

Found = TypeVar("Found")

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 20.0


async def second_scene(stage: Stage) -> None:
    """Kill the worker between the letter and its receipt; then see what everybody is told."""
    stage.console.rule("A crash inside a call that must not be repeated")
    played = await submit(stage.wakeful, LETTER)
    wanted = effect(played.session.id, LETTER.effects[0])
    await _until("the letter to be posted", lambda: _posted(stage, wanted))
    kill = await _until("a kill inside the call", lambda: _kill_holder(stage, played))
    stage.console.print(f"The post took the letter; {kill.worker} (pid {kill.pid}) was killed before it was told.")
    await attend(played)
    await _judge(stage, played, wanted)
    await _resolve(stage, played, wanted)


async def _judge(stage: Stage, played: Played, wanted: str) -> None:
    call = (await stage.parts.store.runs.invocations(stage.scope, played.run.id))[-1]
    told = [item for item in await history(stage.parts, played) if item.role == "tool"][-1]
    letters = stage.ledger.read().counts()[wanted]
    stage.console.print(f"The call is {call.status.value}. What the model was told: {told.ended}.")
    stage.console.print(f"What it answered: [italic]{await played.run.result()}[/]", highlight=False)
    stage.verdict.claim(
        call.status is InvocationStatus.UNCERTAIN and letters == 1,
        "The interrupted call that must not be repeated is UNCERTAIN, and was not repeated",
        f"{letters} letter in the ledger",
    )


async def _resolve(stage: Stage, played: Played, wanted: str) -> None:
    happened = stage.ledger.read().counts()[wanted] > 0
    await played.run.resolve(happened=happened, note="It stands in the book of the post office.")
    follow_up = await submit(stage.wakeful, FOLLOW_UP, played.session)
    await attend(follow_up)
    reply = await follow_up.run.result()
    stage.console.print(f"A person looked it up and resolved the call: it {'did' if happened else 'did not'} happen.")
    stage.console.print(f"Asked again, the model answered: [italic]{reply}[/]", highlight=False)
    ended = [each.ended.status for each in (played, follow_up) if each.ended]
    stage.verdict.claim(
        ended == [RunStatus.COMPLETED] * 2 and "on its way" in str(reply),
        "A person resolved it, and the conversation goes on knowing",
    )


async def _posted(stage: Stage, wanted: str) -> bool | None:
    return stage.ledger.read().counts()[wanted] > 0 or None


async def _kill_holder(stage: Stage, played: Played) -> Kill | None:
    async def holds_it(held: Sequence[Run]) -> bool:
        return any(run.ref.run_id == played.run.id for run in held)

    return await stage.chaos.kill_worker(holds_it)


async def _until(what: str, look: Callable[[], Awaitable[Found | None]]) -> Found:
    """Look until there is something. Raises Timeout."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = await look()
        if found is not None:
            return found
        await asyncio.sleep(LOOK_SECONDS)
    raise Timeout(f"waited {PATIENCE_SECONDS:g} s in vain for {what}")

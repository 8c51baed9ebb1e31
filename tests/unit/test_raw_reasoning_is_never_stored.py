"""What a provider keeps to itself (reasoning, opaque continuation) lives in memory for the active loop only."""

import pytest
from support.runs import office

from wakeful.app import App, ToolCall
from wakeful.domain.drivers import Turn, View
from wakeful.domain.states import RunStatus
from wakeful.models.scripted import call
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

pytestmark = [pytest.mark.anyio, pytest.mark.spec("LOG-8", "CKP-2")]

SECRET = "the-opaque-thought"


class Thinking:
    """A driver whose provider hands over an opaque continuation with every turn."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def next_turn(self, view: View) -> Turn:
        self.seen.append(view.continuation)
        if view.step == 1:
            return Turn(calls=(call("look"),), continuation={"thought": SECRET})
        return Turn(content="Done.", continuation={"thought": SECRET})


async def test_a_continuation_reaches_the_next_turn_and_no_row() -> None:
    driver = Thinking()

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(call: ToolCall) -> str:
            """Look."""
            return "seen"

        app.agent("thinker", driver=driver, tools=[look])

    place = office(register)
    ref = await place.submit("thinker", "Think")
    await place.work()
    assert (await place.run(ref)).status is RunStatus.COMPLETED
    assert driver.seen == [None, {"thought": SECRET}]
    stored = [event.payload.model_dump_json() for event in await place.events(ref)]
    checkpoint = await place.store.checkpoints.latest(ref)
    assert checkpoint is not None
    assert SECRET not in "".join([*stored, checkpoint.state.model_dump_json()])


async def test_a_resumed_run_has_no_continuation() -> None:
    driver = Thinking()
    holdings: list[Holding] = []

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(call: ToolCall) -> str:
            """Look, and ask the run back."""
            holdings[0].draining = True
            return "seen"

        app.agent("thinker", driver=driver, tools=[look])

    place = office(register)
    ref = await place.submit("thinker", "Think")
    [claim] = await place.claim()
    holdings.append(place.holding(claim))
    assert await place.executor().execute(holdings[0]) is Ending.HANDED_BACK
    await place.work()
    assert (await place.run(ref)).status is RunStatus.COMPLETED
    assert driver.seen == [None, None]

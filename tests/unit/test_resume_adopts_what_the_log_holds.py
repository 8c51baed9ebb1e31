"""Checkpoints may be lost, any number of them, at any interruption: it costs no effect, no turn and no count."""

import pytest
from support.runs import Office, office

from wakeful.app import App, ToolCall
from wakeful.domain.states import RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.holding import Holding

pytestmark = pytest.mark.anyio


class Interrupted:
    """A run that is handed back after each of its effects."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.holding: Holding | None = None
        script = [*[calls(call("pay", cents=cents)) for cents in (1, 2, 3)], say("Done.")]
        self.office: Office = office(self._register, agent=script)

    def _register(self, app: App) -> None:
        @app.tool(idempotency="non_idempotent")
        async def pay(call: ToolCall, cents: int) -> str:
            """Pay."""
            self.effects.append(f"pay {cents}")
            if self.holding is not None:
                self.holding.draining = True
            return "paid"

        app.agent("agent", model="scripted:agent", tools=[pay])

    async def execute(self) -> None:
        [claim] = await self.office.claim()
        self.holding = self.office.holding(claim)
        await self.office.executor().execute(self.holding)


@pytest.mark.spec("CKP-4")
@pytest.mark.gate("checkpoint_dispensable")
@pytest.mark.parametrize("newest", [1, 2, 3, 4, None])
async def test_losing_any_checkpoint_suffix_costs_no_effect_and_no_turn(newest: int | None) -> None:
    past = Interrupted()
    ref = await past.office.submit("agent", "Go")
    for paid in range(3):
        await past.execute()
        assert len(past.effects) == paid + 1
        await past.office.store.checkpoints.drop(ref, newest=newest)
    await past.office.work()
    run = await past.office.run(ref)
    assert (run.status, run.tool_call_count) == (RunStatus.COMPLETED, 3)
    assert past.effects == ["pay 1", "pay 2", "pay 3"]
    assert len(await past.office.turns(ref)) == 4

"""Runs that between them use every way in which a run goes on, with tools whose effects an outside ledger takes.

The scripts are pure functions of the request, so that a run that was interrupted is asked for the same again.
"""

import asyncio
import os
import time
from pathlib import Path

from wakeful.app import App, ToolCall, ToolFailed
from wakeful.domain.models import ModelProvider, ModelRequest, ModelResponse, OnDelta
from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.faults.crashes.points import HERE
from wakeful.faults.crashes.programs import PROGRAM, program_script
from wakeful.faults.ledger import LedgerClient
from wakeful.models.scripted import ScriptedProvider, call, calls, say

__all__ = ["ASKED", "LEDGER_VARIABLE", "PACE_VARIABLE", "SHAPES", "WITNESSED", "app", "asked_key"]

LEDGER_VARIABLE = "FAULTS_LEDGER"
"""The ledger's socket, for the processes that execute."""
PACE_VARIABLE = "FAULTS_PACE_SECONDS"
"""From an effect to its result; none when unset."""
ASKED = "asked the model"
"""What the ledger says of a model call."""

SHAPES = {
    "sequence": [calls(call("pay", cents=1)), calls(call("look", item="a"), text="Looking."), say("Done.")],
    "batch": [calls(call("look", item="a"), call("pay", cents=1), call("store", item="b")), say("Done.")],
    "question": [calls(call(ASK_USER, question="Which?"), call("pay", cents=1)), say("Done.")],
    "approval": [calls(call("refund", cents=7), call("look", item="a")), say("Done.")],
    "child": [calls(call(DELEGATE, agent="sequence", input="Do it"), call("pay", cents=2)), say("Done.")],
}
"""What the model of each shape says, turn by turn."""

WITNESSED = frozenset({"look", "store", "pay", "refund", "declined", "breaks"})
"""The tools whose effects the ledger takes."""

app = App()


class AskedProvider:
    """Tells the ledger of every model call, since the model has no other witness."""

    name = "scripted"

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        key = asked_key(str(request.run.ref.run_id), request.step)
        with HERE.quiet():
            await _ledger().record(key, ASKED, once=False)
        return await self._provider.respond(request, on_delta=on_delta)


def asked_key(run_id: str, step: int) -> str:
    """Under which key the ledger knows the model calls of a step."""
    return f"{run_id}/{step}"


def _ledger() -> LedgerClient:
    return LedgerClient(Path(os.environ[LEDGER_VARIABLE]))


async def _happen(call: ToolCall, *, once: bool) -> None:
    with HERE.point(f"effect {call.tool}"):
        await _ledger().record(call.key, call.tool, {"clock": time.time()}, once=once)
    if pace := os.environ.get(PACE_VARIABLE):
        await asyncio.sleep(float(pace))


@app.tool(idempotency="read_only")
async def look(call: ToolCall, item: str) -> str:
    """Look something up."""
    await _happen(call, once=False)
    return item


@app.tool(idempotency="conditionally_idempotent")
async def store(call: ToolCall, item: str) -> str:
    """Store under the call's key: the service takes a key once."""
    await _happen(call, once=True)
    return item


@app.tool(idempotency="non_idempotent")
async def pay(call: ToolCall, cents: int) -> str:
    """Pay."""
    await _happen(call, once=False)
    return "paid"


@app.tool(idempotency="non_idempotent", approval=True)
async def refund(call: ToolCall, cents: int) -> str:
    """Give money back, if somebody allows it."""
    await _happen(call, once=False)
    return "refunded"


@app.tool(idempotency="non_idempotent")
async def declined(call: ToolCall, cents: int) -> str:
    """Pay with a card that is declined: nothing is done."""
    raise ToolFailed("declined")


@app.tool(idempotency="non_idempotent")
async def breaks(call: ToolCall, cents: int) -> str:
    """Pay over a connection that breaks after the payment."""
    await _happen(call, once=False)
    raise ConnectionResetError("the connection broke")


TOOLS = (look, store, pay, refund, declined, breaks)
app.model_provider("scripted", AskedProvider(ScriptedProvider({**SHAPES, PROGRAM: program_script})))
for _name in (*SHAPES, PROGRAM):
    app.agent(
        _name,
        model=f"scripted:{_name}",
        tools=TOOLS,
        asks=True,
        delegates={"child": ["sequence"], PROGRAM: [PROGRAM]}.get(_name, []),
    )

"""Runs of every shape: in sequence, in a batch, with a question, an approval, a child, a refusal."""

from collections import Counter

from support.runs import Office, office
from wakeful.app import App, ToolCall
from wakeful.domain.history import Conversation, TurnEntry
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import InvocationStatus
from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.models.scripted import call, calls, say

SCRIPTS = {
    "sequence": [calls(call("pay", cents=1)), calls(call("look", item="a")), say("Done.")],
    "batch": [calls(call("look", item="a"), call("pay", cents=1), call("store", item="b")), say("Done.")],
    "question": [calls(call(ASK_USER, question="Which?"), call("look", item="a")), say("Done.")],
    "approval": [calls(call("refund", cents=7), call("look", item="a")), say("Done.")],
    "child": [calls(call(DELEGATE, agent="sequence", input="Do it")), say("Done.")],
    "compaction": [calls(call("look", item="a" * 400)), calls(call("pay", cents=1)), say("Done.")],
    "refused": [calls(call("fly"), call("pay", cents=1)), say("Done.")],
}


def build() -> tuple[Office, Counter[str]]:
    effects: Counter[str] = Counter()

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(call: ToolCall, item: str) -> str:
            """Look."""
            return item

        @app.tool(idempotency="conditionally_idempotent")
        async def store(call: ToolCall, item: str) -> str:
            """Store under the key: doing it again changes nothing."""
            effects[call.key] = 1
            return item

        @app.tool(idempotency="non_idempotent")
        async def pay(call: ToolCall, cents: int) -> str:
            """Pay."""
            effects[call.key] += 1
            return "paid"

        @app.tool(idempotency="non_idempotent", approval=True)
        async def refund(call: ToolCall, cents: int) -> str:
            """Refund."""
            effects[call.key] += 1
            return "refunded"

        for name in SCRIPTS:
            app.agent(
                name,
                model=f"scripted:{name}",
                tools=[look, store, pay, refund],
                asks=True,
                delegates=["sequence"] if name == "child" else [],
                context_limit_bytes=600 if name == "compaction" else None,
            )

    return office(register, **SCRIPTS), effects


async def answer(place: Office, ref: RunRef) -> None:
    for each in await place.calls(ref):
        if each.status is InvocationStatus.AWAITING_INPUT:
            await place.store.control.answer(place.scope, ref.run_id, each.id, "the red one")
        if each.status is InvocationStatus.AWAITING_APPROVAL:
            await place.store.control.approve(place.scope, ref.run_id, each.id)


def checked(conversation: Conversation) -> list[TurnEntry]:
    turns = [e for e in conversation.entries if isinstance(e, TurnEntry)]
    for turn in turns:
        assert turn.unanswered == []
    return turns

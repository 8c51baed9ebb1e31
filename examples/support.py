"""A support desk: what a team writes. `wakeful up --app support:app` serves it.

The model is scripted, so it runs without a key; put a provider of your own in its place.
"""

from wakeful.app import App, ModelRequest, ToolCall, ToolFailed
from wakeful.models.scripted import Line, ScriptedProvider, call, calls, last_result, say

app = App()
ORDERS = {"7": {"cents": 4200, "state": "delivered"}, "8": {"cents": 990, "state": "on its way"}}
REFUNDS: dict[str, int] = {}


@app.tool(idempotency="read_only")
async def find_order(order_id: str) -> dict[str, object]:
    """Look an order up by its number."""
    if order_id not in ORDERS:
        raise ToolFailed(f"there is no order {order_id}", code="unknown_order")
    return {"order_id": order_id, **ORDERS[order_id]}


@app.tool(idempotency="conditionally_idempotent", timeout_seconds=30, approval=True)
async def refund(call: ToolCall, order_id: str, cents: int) -> dict[str, object]:
    """Give a customer their money back. A person has to approve it."""
    # The key is the same on every attempt: a payment service that takes it pays once.
    REFUNDS.setdefault(call.key, cents)
    return {"order_id": order_id, "refunded_cents": REFUNDS[call.key]}


def script(request: ModelRequest) -> Line:
    """What a model would say: it asks which order, looks it up, and gives the money back."""
    found = last_result(request, "find_order")
    if last_result(request, "refund") is not None:
        return say("Your money is on its way.")
    if found is not None:
        return calls(call("refund", order_id=found["order_id"], cents=found["cents"]))
    answer = last_result(request, "conversation.ask_user")
    if answer is None:
        return calls(call("conversation.ask_user", question="Which order do you mean?"))
    return calls(call("find_order", order_id=str(answer)))


app.model_provider("scripted", ScriptedProvider({"support": script}))
app.agent(
    "support",
    model="scripted:support",
    tools=[find_order, refund],
    asks=True,
    instructions="Help with orders. Ask before you guess.",
)

"""What a team writes with: an app, its tools, its agents.

```python
from wakeful.app import App, ToolCall

app = App()

@app.tool(idempotency="conditionally_idempotent")
async def refund(call: ToolCall, order_id: str, cents: int) -> dict:
    "Give a customer their money back."
    return await payments.refund(order_id, cents, idempotency_key=call.key)

app.agent("support", version=1, model="scripted:support", tools=[refund])
```

There is no global: `wakeful worker --app module:app` loads the object that the module names.
"""

from wakeful.app.application import App
from wakeful.app.providers import MakeDriver
from wakeful.domain.models import ModelMessage, ModelProvider, ModelRequest, ModelResponse
from wakeful.domain.tools import DidNotHappen, Happened, RetryPolicy, Tool, ToolCall, ToolFailed

__all__ = [
    "App",
    "DidNotHappen",
    "Happened",
    "MakeDriver",
    "ModelMessage",
    "ModelProvider",
    "ModelRequest",
    "ModelResponse",
    "RetryPolicy",
    "Tool",
    "ToolCall",
    "ToolFailed",
]

"""A small app for tests of the client and the command line: what the user says decides what happens."""

import asyncio
import time
from datetime import timedelta
from typing import Any

from wakeful.app import App, ModelRequest, ModelResponse, ToolCall
from wakeful.client import Backend
from wakeful.domain.errors import PermanentModelError
from wakeful.domain.ids import new_id
from wakeful.domain.runs import Claim
from wakeful.domain.states import PriorityClass
from wakeful.domain.tools import ASK_USER
from wakeful.models.scripted import ScriptedProvider, call, calls, last_result, say
from wakeful.runtime.agent_driver import AgentDriver
from wakeful.runtime.executor import Executor
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

LEASE = timedelta(seconds=30)

app = App()


@app.tool(idempotency="non_idempotent", approval=True)
async def refund(call: ToolCall, order: int) -> str:
    """Give money back."""
    return f"refunded {order}"


@app.tool(idempotency="non_idempotent")
async def wire(call: ToolCall) -> str:
    """Send money over a connection that breaks."""
    raise ConnectionResetError("the connection broke")


@app.tool(idempotency="read_only", timeout_seconds=60)
async def wait(call: ToolCall) -> str:
    """Take long."""
    await asyncio.sleep(60)
    return "waited"


def _script(request: ModelRequest) -> ModelResponse | Exception:
    last = max(i for i, message in enumerate(request.messages) if message.role == "user")
    said = str(request.messages[last].content)
    results = [message for message in request.messages[last:] if message.role == "tool"]
    word, _, rest = said.partition(" ")
    if results:
        return _after(word, request)
    match word:
        case "ask":
            return calls(call(ASK_USER, question=rest or "Which one?"))
        case "ask-twice":
            return calls(call(ASK_USER, question="First?"), call(ASK_USER, question="Second?"))
        case "refund":
            return calls(call("refund", order=7))
        case "wire":
            return calls(call("wire"))
        case "wait":
            return calls(call("wait"))
        case "fail":
            return PermanentModelError("the model does not want to", code="unwilling")
        case "silent":
            return ModelResponse(silent=True)
        case _:
            return say(f"You said: {said}")


def _after(word: str, request: ModelRequest) -> ModelResponse:
    if word == "ask":
        return say(f"You answered: {last_result(request, ASK_USER)}")
    [result, *_] = [message.result for message in reversed(request.messages) if message.result]
    return say(f"{word}: {result.status.value}")


app.model_provider("scripted", ScriptedProvider({"desk": _script}))
app.agent("desk", version=2, model="scripted:desk", tools=[refund, wire, wait], asks=True, repeat_limit=None)


class Wakes:
    """Wakeups that only remember."""

    def __init__(self) -> None:
        self.given: list[PriorityClass] = []

    def wake(self, priority: PriorityClass) -> None:
        self.given.append(priority)


class DeskWorker:
    """Executes the desk's runs (or another app's) over any store, in this process, when asked."""

    def __init__(self, store: Any, served: App = app) -> None:
        self._store = store
        self._catalogue = served.catalogue(make_driver=AgentDriver)

    async def work(self) -> list[Ending]:
        """Execute everything due, and what becomes due by it."""
        endings: list[Ending] = []
        while claims := await self.claim():
            endings += [await self.execute(each) for each in claims]
        return endings

    async def execute(self, claim: Claim) -> Ending:
        """Execute one claimed run."""
        executor = Executor(
            log=self._store.log,
            queue=self._store.queue,
            sessions=self._store.sessions,
            catalogue=self._catalogue,
            artifacts=self._store.artifacts,
        )
        return await executor.execute(Holding(claim, trusted_until=time.monotonic() + LEASE.total_seconds()))

    async def claim(self) -> list[Claim]:
        """Take everything due."""
        claimed: list[Claim] = await self._store.queue.claim(
            new_id(),
            capacity=dict.fromkeys(PriorityClass, 10),
            agents=self._catalogue.names,
            lease=LEASE,
            suspects=8,
        )
        return claimed


def backend(store: Any, wakes: Wakes | None = None, **options: Any) -> Backend:
    return Backend(store, wakeups=wakes or Wakes(), **options)

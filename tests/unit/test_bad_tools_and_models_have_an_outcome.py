"""Whatever a tool or a model does, the run goes on or ends with a typed failure, and the worker lives."""

import asyncio
from typing import Any

import pytest
from support.runs import Office, office

from wakeful.app import App, RetryPolicy, ToolCall
from wakeful.domain.content import ArtifactRef, ProposedCall
from wakeful.domain.models import ModelResponse
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


RAISED = [
    TimeoutError(),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    MemoryError(),
    RecursionError(),
    Unspeakable(),
    asyncio.CancelledError(),
    StopIteration(),
]


def build(script: Any, tool: Any = None, **options: Any) -> Office:
    def register(app: App) -> None:
        tools = []
        if tool is not None:
            settings = {"idempotency": "idempotent", "retry": RetryPolicy(attempts=1), "name": "work", **options}
            app.tool(**settings)(tool)
            tools = [tool]
        app.agent("agent", model="scripted:agent", tools=tools)

    return office(register, agent=script)


async def outcome(place: Office, *, ending: Ending = Ending.COMPLETED) -> Any:
    ref = await place.submit("agent", "Go")
    assert await place.work() == [ending]
    return ref


async def result_of(place: Office, ref: Any) -> Any:
    return (await place.turns(ref))[0].calls[0].result


@pytest.mark.parametrize("error", RAISED, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("idempotency", ["idempotent", "non_idempotent"])
async def test_a_tool_may_raise_anything(error: BaseException, idempotency: str) -> None:
    async def work(call: ToolCall) -> str:
        """Raise."""
        raise error

    place = build([calls(call("work")), say("Ok.")], work, idempotency=idempotency)
    ref = await outcome(place)
    expected = InvocationStatus.FAILED if idempotency == "idempotent" else InvocationStatus.UNCERTAIN
    assert (await result_of(place, ref)).status is expected


@pytest.mark.parametrize(
    "error", [e for e in RAISED if not isinstance(e, asyncio.CancelledError)], ids=lambda e: type(e).__name__
)
async def test_a_model_may_raise_anything(error: BaseException) -> None:
    def script(request: object) -> Any:
        raise error

    place = build(script)
    ref = await outcome(place, ending=Ending.FAILED)
    run = await place.run(ref)
    assert run.failure is not None
    assert run.failure.code.startswith("model_")


@pytest.mark.parametrize(("idempotency", "status"), [("idempotent", "FAILED"), ("non_idempotent", "UNCERTAIN")])
async def test_a_tool_that_takes_too_long_has_an_outcome(idempotency: str, status: str) -> None:
    async def work(call: ToolCall) -> str:
        """Never return."""
        await asyncio.Event().wait()
        return "never"

    place = build([calls(call("work")), say("Ok.")], work, idempotency=idempotency, timeout_seconds=0.02)
    result = await result_of(place, await outcome(place))
    assert (result.status, result.code) == (status, "timed_out")


async def test_a_tool_that_will_not_be_cancelled_is_left_behind() -> None:
    async def work(call: ToolCall) -> str:
        """Swallow every cancellation for a while."""
        for _ in range(50):
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "late"

    place = build([calls(call("work")), say("Ok.")], work, timeout_seconds=0.02)
    assert (await result_of(place, await outcome(place))).code == "timed_out"


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (object(), "<object>"),
        (float("nan"), None),
        ("a\x00b\ud800", "a�b�"),
        ({"k\x00": 1}, {"k�": 1}),
        ({1: {2, 3}}, {"1": [2, 3]}),
        (b"\xff", "_w=="),
    ],
    ids=["object", "nan", "text", "key", "set", "bytes"],
)
async def test_a_result_that_is_no_json_is_repaired(value: Any, data: Any) -> None:
    async def work(call: ToolCall) -> Any:
        """Return something odd."""
        return value

    place = build([calls(call("work")), say("Ok.")], work)
    result = await result_of(place, await outcome(place))
    assert result.status is InvocationStatus.COMPLETED
    assert result.data == data


async def test_a_result_nested_too_deeply_is_completed_without_its_data() -> None:
    async def work(call: ToolCall) -> Any:
        """Return 20,000 levels."""
        value: Any = None
        for _ in range(20_000):
            value = [value]
        return value

    place = build([calls(call("work")), say("Ok.")], work)
    result = await result_of(place, await outcome(place))
    assert (result.status, result.code) == (InvocationStatus.COMPLETED, "result_unreadable")


@pytest.mark.parametrize("arguments", ["[" * 20_000 + "]" * 20_000, "{", "[]", '{"a": "\\u0000"}', "nonsense"])
async def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    async def work(call: ToolCall, a: str = "") -> str:
        """Work."""
        return a

    turn = ModelResponse(calls=(ProposedCall(position=0, tool="work", arguments=arguments),))
    place = build([turn, say("Ok.")], work)
    result = await result_of(place, await outcome(place))
    assert (result.status, result.code) == (InvocationStatus.REFUSED, "invalid_arguments")


async def test_a_models_text_is_repaired_and_counted() -> None:
    place = build([say("a\x00b\ud800c")])
    ref = await outcome(place)
    assert (await place.turns(ref))[0].content == "a�b�c"
    [response] = [e.payload for e in await place.events(ref) if e.type == "model.response.completed"]
    assert response.repaired == 2  # type: ignore[attr-defined]


async def test_oversized_text_and_results_become_artifacts() -> None:
    async def work(call: ToolCall) -> str:
        """Return a lot."""
        return "r" * 300_000

    place = build([calls(call("work"), text="t" * 300_000), say("Ok.")], work)
    ref = await outcome(place)
    turn = (await place.turns(ref))[0]
    assert isinstance(turn.content, ArtifactRef)
    result = turn.calls[0].result
    assert result is not None
    assert result.artifact is not None
    assert await place.store.artifacts.fetch(ref.session, turn.content) == b"t" * 300_000
    assert (await place.run(ref)).status is RunStatus.COMPLETED

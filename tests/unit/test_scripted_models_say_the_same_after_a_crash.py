"""A script's line is a pure function of the request."""

import pytest
from support.requests import a_request

from wakeful.domain.content import CallResult
from wakeful.domain.errors import PermanentModelError, TransientModelError
from wakeful.domain.models import ModelMessage, ModelRequest, ModelResponse
from wakeful.domain.states import InvocationStatus
from wakeful.models.scripted import Line, ScriptedProvider, call, calls, last_result, say

pytestmark = pytest.mark.anyio


async def test_the_line_is_chosen_by_the_sessions_assistant_messages() -> None:
    lines: list[Line] = [calls(call("look", order="7")), "done", ModelResponse(silent=True)]
    provider = ScriptedProvider({"m": lines})
    for _attempt in range(2):
        first = await provider.respond(a_request(turn_index=0))
        assert [(c.position, c.tool, c.arguments) for c in first.calls] == [(0, "look", '{"order": "7"}')]
        assert (await provider.respond(a_request(turn_index=1, step=2))).content == "done"
        assert (await provider.respond(a_request(turn_index=2))).silent


async def test_calls_are_numbered_in_the_order_given() -> None:
    assert [each.position for each in calls(call("a"), call("b"), call("a")).calls] == [0, 1, 2]


async def test_a_function_decides_by_what_the_request_holds() -> None:
    def script(request: ModelRequest) -> str:
        return f"{len(request.messages)} {request.step}"

    assert (await ScriptedProvider({"m": script}).respond(a_request(step=4))).content == "0 4"


async def test_an_exception_is_raised_where_it_stands() -> None:
    provider = ScriptedProvider({"m": [TransientModelError("busy", retry_after_seconds=1), PermanentModelError("no")]})
    with pytest.raises(TransientModelError, match="busy"):
        await provider.respond(a_request(turn_index=0))
    with pytest.raises(PermanentModelError, match="no"):
        await provider.respond(a_request(turn_index=1))


async def test_a_script_that_is_missing_or_has_ended_is_a_permanent_error() -> None:
    provider = ScriptedProvider({"m": ["one"]})
    with pytest.raises(PermanentModelError, match="has 1 lines, line 2 was asked for"):
        await provider.respond(a_request(turn_index=1))
    with pytest.raises(PermanentModelError, match=r"no script 'x' \(there are: m\)"):
        await provider.respond(a_request("x"))


async def test_text_is_streamed_in_pieces_that_make_the_whole() -> None:
    pieces: list[str] = []

    async def keep(piece: str) -> None:
        pieces.append(piece)

    response = await ScriptedProvider({"m": [say("  two  words\n")]}).respond(a_request(), on_delta=keep)
    assert "".join(pieces) == response.content
    assert len(pieces) == 3


async def test_the_newest_result_of_a_tool_is_found_although_call_ids_repeat_between_runs() -> None:
    def turn(tool: str, data: int) -> tuple[ModelMessage, ModelMessage]:
        result = CallResult(status=InvocationStatus.COMPLETED, code="ok", data=data)
        return (
            ModelMessage("assistant", calls=(call(tool),), call_ids=("s1p0",)),
            ModelMessage("tool", call_id="s1p0", result=result),
        )

    request = a_request(messages=(*turn("a", 1), *turn("a", 2), *turn("b", 3)))
    assert last_result(request, "a") == 2
    assert last_result(request, "b") == 3
    assert last_result(request, "c") is None

"""Each rule for an oddity of real logs, on the smallest log that has it. One test for the real files is below."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.requests import a_request

from wakeful.domain.errors import PermanentModelError
from wakeful.models.recording import Inexpressible, Recording, read_recording
from wakeful.models.replay import ReplayProvider


def user(content: Any = "hi", role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def call(identity: str = "c", name: str = "t", arguments: str = "{}") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(content: Any = None, *calls: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **extra}


def result(identity: str = "c", content: Any = "r", **extra: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": content, **extra}


def read(*messages: dict[str, Any]) -> Recording:
    return read_recording({"id": "x", "messages": list(messages)})


def shape(recording: Recording) -> list[tuple[list[str], list[int]]]:
    """Per run: the roles of its messages, the number of calls of each turn."""
    return [([m.role for m in run.messages], [len(t.calls) for t in run.turns]) for run in recording.runs]


def results(recording: Recording) -> list[Any]:
    return [call.result.content if call.result else None for call in recording.calls]


def test_a_group_of_messages_starts_one_run() -> None:
    recording = read(user("a"), user("b"), assistant("c"), user("d"), assistant("e"))
    assert shape(recording) == [(["user", "user"], [0]), (["user"], [0])]


def test_a_first_system_message_is_the_sessions_first_message() -> None:
    assert shape(read(user("s", "system"), user(), assistant("c"))) == [(["system", "user"], [0])]


def test_a_system_message_in_the_middle_starts_a_run() -> None:
    recording = read(user(), assistant("a"), user("s", "system"), user(), assistant("b"))
    assert shape(recording) == [(["user"], [0]), (["system", "user"], [0])]


def test_an_assistant_that_speaks_first_is_a_run_without_a_message() -> None:
    assert shape(read(assistant("hello"), user(), assistant("a"))) == [([], [0]), (["user"], [0])]


def test_a_second_assistant_message_in_a_row_is_a_run_without_a_message() -> None:
    assert shape(read(user(), assistant("a"), assistant("b"))) == [(["user"], [0]), ([], [0])]


def test_a_conversation_may_end_with_the_user() -> None:
    assert shape(read(user(), assistant("a"), user("bye"))) == [(["user"], [0]), (["user"], [])]


def test_a_run_may_end_with_results() -> None:
    assert shape(read(user(), assistant(None, call()), result(), user(), assistant("a"))) == [
        (["user"], [1]),
        (["user"], [0]),
    ]
    assert shape(read(user(), assistant(None, call()), result())) == [(["user"], [1])]


def test_an_id_used_again_belongs_to_the_latest_turn_that_waits_for_it() -> None:
    recording = read(
        user(), assistant(None, call()), result("c", "first"), assistant(None, call()), result("c", "second")
    )
    assert results(recording) == ["first", "second"]


def test_empty_ids_are_told_apart_by_position() -> None:
    recording = read(user(), assistant(None, call(""), call("")), result("", "first"), result("", "second"))
    assert results(recording) == ["first", "second"]


def test_an_unanswered_call_of_an_earlier_turn_does_not_take_a_later_ones_result() -> None:
    recording = read(user(), assistant(None, call("", "hand_off")), assistant(None, call("")), result("", "r"))
    assert results(recording) == [None, "r"]


def test_results_stand_with_their_call_in_whatever_order_they_came() -> None:
    recording = read(user(), assistant(None, call("a"), call("b")), result("b", "B"), result("a", "A"))
    assert results(recording) == ["A", "B"]


def test_a_result_that_comes_after_the_next_user_message_stands_with_its_call() -> None:
    recording = read(user(), assistant(None, call("a")), user("well?"), result("a", "A"), assistant("done"))
    assert results(recording) == ["A"]
    assert shape(recording) == [(["user"], [1]), (["user"], [0])]


def test_a_call_may_have_no_result() -> None:
    recording = read(user(), assistant(None, call()), assistant("went on"))
    assert results(recording) == [None]
    assert shape(recording) == [(["user"], [1, 0])]


def test_text_beside_calls_and_neither_are_kept_apart() -> None:
    recording = read(user(), assistant("text", call()), result(), assistant(""), assistant(None))
    assert [turn.content for turn in recording.turns] == ["text", "", None]
    assert shape(recording) == [(["user"], [1, 0]), ([], [0])]


def test_parts_carriage_returns_and_escape_codes_are_verbatim() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    recording = read(user(parts), assistant([]), user("a\r\n\x1b[0m"))
    assert recording.runs[0].messages[0].content == parts
    assert recording.turns[0].content == []
    assert recording.runs[1].messages[0].content == "a\r\n\x1b[0m"


def test_argument_text_is_verbatim() -> None:
    text = '{ "b" : 1,\n "a": "\\u00e9" }'
    assert read(user(), assistant(None, call(arguments=text))).calls[0].arguments == text


def test_reasoning_is_dropped() -> None:
    assert "secret thought" not in repr(read(user(), assistant("a", reasoning_content="secret thought")))


def test_an_error_and_an_empty_result_are_results() -> None:
    recording = read(user(), assistant(None, call("a"), call("b")), result("a", "", is_error=True), result("b", ""))
    assert [(c.result.content, c.result.is_error) for c in recording.calls if c.result] == [("", True), ("", False)]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([result()], "message 0: a tool result for id 'c', which no unanswered call has"),
        ([user(), assistant(None, call()), result(), result()], "message 3: a tool result"),
        ([user(role="developer")], "role 'developer' is none of"),
        ([user(7)], "its content is neither text nor parts nor null"),
        ([user(["a"])], "a part of its content is no JSON object"),
        ([user("a\x00")], "text contains NUL"),
        ([user("\ud800")], "a lone surrogate"),
        ([assistant(None, call(arguments="{"))], "the arguments of t are no valid JSON"),
        ([assistant(None, call(arguments="[]"))], "the arguments of t are no JSON object"),
        ([assistant(None, call(arguments='{"a":"\\u0000"}'))], "text contains NUL"),
        ([assistant(None, call(name=""))], "must have 1 to 200 characters"),
        ([assistant(None, call(name="agent.delegate"))], "built-in"),
        ([assistant(None, {"id": "c"})], "a tool call without a function"),
        ([7], "it is no JSON object"),
        ([], "no messages"),
    ],
)
def test_what_cannot_be_expressed_says_where_and_why(messages: list[Any], expected: str) -> None:
    with pytest.raises(Inexpressible) as caught:
        read(*messages)
    assert expected in str(caught.value)


@pytest.mark.anyio
async def test_the_provider_gives_the_recorded_turns_and_is_silent_between_them() -> None:
    recording = read(user(), assistant("t", call("i", "u", '{"a": 1}')), result("i"), user(), assistant("b"), user())
    provider = ReplayProvider({"x": recording})
    first = await provider.respond(a_request("x", step=1, turn_index=0))
    assert first.content == "t"
    assert [c.model_dump() for c in first.calls] == [
        {"position": 0, "tool": "u", "arguments": '{"a": 1}', "provider_call_id": "i"}
    ]
    assert (await provider.respond(a_request("x", step=2, turn_index=1))).silent
    assert (await provider.respond(a_request(metadata={"recording": "x"}, turn_index=1))).content == "b"
    assert (await provider.respond(a_request("x", step=1, turn_index=2))).silent


@pytest.mark.anyio
async def test_the_provider_refuses_a_session_that_left_the_recording() -> None:
    recording = read(user(), assistant("t", call()), result(), assistant("b"))
    with pytest.raises(PermanentModelError, match="has left the recording"):
        await ReplayProvider({"x": recording}).respond(a_request("x", step=1, turn_index=1))
    with pytest.raises(PermanentModelError, match="no recording 'y'"):
        await ReplayProvider({"x": recording}).respond(a_request("y"))


def test_every_recorded_conversation_can_be_expressed(trajectories: Path) -> None:
    recordings: list[Recording] = []
    messages = calls = 0
    for file in sorted(trajectories.glob("*.jsonl")):
        for text in file.read_text(encoding="utf-8").split("\n"):
            if text:
                line = json.loads(text)
                recordings.append(read_recording(line))
                messages += len(line["messages"])
                calls += sum(len(m.get("tool_calls") or ()) for m in line["messages"])
    assert len(recordings) == 313
    assert sum(len(r.calls) for r in recordings) == calls
    assert sum(1 for r in recordings for c in r.calls if c.result is None) == 26
    stored = sum(len(run.messages) + len(run.turns) for r in recordings for run in r.runs)
    assert stored + sum(1 for r in recordings for c in r.calls if c.result) == messages

"""What the comparison must see, and what it must not mind."""

from uuid import uuid4

import pytest

from wakeful.domain.content import ArtifactRef, CallResult, ProposedCall
from wakeful.domain.events.turns import CallResolved
from wakeful.domain.history import CallRecord, Conversation, MessageEntry, NoteEntry, TurnEntry
from wakeful.domain.states import InvocationStatus
from wakeful.faults.replay.normal_form import Item, first_difference, of_recording, of_session
from wakeful.models.recording import Recording, read_recording

pytestmark = pytest.mark.anyio


def recorded() -> Recording:
    def call(identity: str, name: str, arguments: str) -> dict[str, object]:
        return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}

    calls = [call("", "a", '{"x": 1}'), call("", "b", "{}"), call("z", "c", "{}")]
    return read_recording(
        {
            "id": "r",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": "thought"},
                {"role": "tool", "tool_call_id": "z", "content": "C", "is_error": True},
                {"role": "tool", "tool_call_id": "", "content": "A"},
                {"role": "assistant", "content": ""},
            ],
        }
    )


def result(status: InvocationStatus, code: str, data: object = None) -> CallResult:
    return CallResult.model_validate({"status": status, "code": code, "data": data})


def replayed() -> Conversation:
    def record(position: int, tool: str, arguments: str, identity: str, given: CallResult | None) -> CallRecord:
        call = ProposedCall(position=position, tool=tool, arguments=arguments, provider_call_id=identity)
        return CallRecord(uuid4(), call, given)

    calls = [
        record(0, "a", '{"x": 1}', "", result(InvocationStatus.COMPLETED, "ok", "A")),
        record(1, "b", "{}", "", result(InvocationStatus.FAILED, "no_result")),
        record(2, "c", "{}", "z", result(InvocationStatus.FAILED, "recorded_error", "C")),
    ]
    return Conversation(
        entries=[
            MessageEntry(1, "system", "s"),
            MessageEntry(2, "user", [{"type": "text", "text": "u"}]),
            TurnEntry(3, uuid4(), 1, None, calls),
            TurnEntry(9, uuid4(), 2, "", []),
        ]
    )


async def no_fetch(ref: ArtifactRef) -> bytes:
    raise AssertionError(f"nothing here is kept as an artifact, {ref.artifact_id} neither")


async def test_a_faithful_replay_equals_its_recording() -> None:
    assert first_difference(of_recording(recorded()), await of_session(replayed(), no_fetch)) is None


async def test_an_absent_result_and_no_result_are_equal() -> None:
    history = replayed()
    turn = history.entries[2]
    assert isinstance(turn, TurnEntry)
    turn.calls[1].result = None
    assert first_difference(of_recording(recorded()), await of_session(history, no_fetch)) is None


async def test_an_artifact_stands_for_what_it_holds() -> None:
    history = replayed()
    stored = {}

    def ref(data: bytes, media_type: str) -> ArtifactRef:
        made = ArtifactRef(artifact_id=uuid4(), sha256="", size_bytes=len(data), media_type=media_type)
        stored[made.artifact_id] = data
        return made

    async def fetch(given: ArtifactRef) -> bytes:
        return stored[given.artifact_id]

    message, turn = history.entries[1], history.entries[2]
    assert isinstance(message, MessageEntry)
    assert isinstance(turn, TurnEntry)
    message.content = ref(b'[{"type":"text","text":"u"}]', "application/json")
    record = turn.calls[0]
    record.call = record.call.model_copy(update={"arguments": ref(b'{"x": 1}', "text/plain; charset=utf-8")})
    record.result = CallResult(status=InvocationStatus.COMPLETED, code="ok", artifact=ref(b'"A"', "application/json"))
    assert first_difference(of_recording(recorded()), await of_session(history, fetch)) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"arguments": '{"x":1}'}, "item 2: arguments of call 0 (a) differ from character 5 on (8 recorded, 7 found)"),
        ({"tool": "d"}, "item 2: tool of call 0 (a) differ from character 0 on (1 recorded, 1 found)"),
        ({"provider_call_id": "q"}, "item 2: provider call id of call 0 (a) differ from character 0 on"),
    ],
)
async def test_any_other_text_of_a_call_differs(change: dict[str, str], expected: str) -> None:
    history = replayed()
    turn = history.entries[2]
    assert isinstance(turn, TurnEntry)
    turn.calls[0].call = turn.calls[0].call.model_copy(update=change)
    difference = first_difference(of_recording(recorded()), await of_session(history, no_fetch))
    assert difference is not None
    assert difference.startswith(expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result(InvocationStatus.COMPLETED, "ok", "B"), "content of a result of a (ok) differs"),
        (result(InvocationStatus.FAILED, "recorded_error", "A"), "ended as error, recorded as ok"),
        (result(InvocationStatus.UNCERTAIN, "timed_out", "A"), "ended as uncertain (timed_out), recorded as ok"),
        (result(InvocationStatus.REFUSED, "repeated_call", "A"), "ended as refused (repeated_call), recorded as ok"),
    ],
)
async def test_any_other_end_of_a_call_differs(given: CallResult, expected: str) -> None:
    history = replayed()
    turn = history.entries[2]
    assert isinstance(turn, TurnEntry)
    turn.calls[0].result = given
    difference = first_difference(of_recording(recorded()), await of_session(history, no_fetch))
    assert difference is not None
    assert expected in difference


async def test_what_is_missing_and_what_is_added_differ() -> None:
    history = replayed()
    resolved = CallResolved(invocation_id=uuid4(), step=1, position=0, tool="a", happened=True)
    whole = await of_session(history, no_fetch)
    history.entries.append(NoteEntry(10, resolved))
    added = await of_session(history, no_fetch)
    wanted = of_recording(recorded())
    assert first_difference(wanted, whole[:-1]) == "item 5: a message of role assistant is missing"
    assert first_difference(wanted, added) == "item 6: a message of role note that the recording does not have"


def test_a_difference_never_shows_content() -> None:
    difference = first_difference([Item("user", "my secret")], [Item("user", "my sekret")])
    assert difference == "item 0: content of a message of role user differs from character 5 on (9 recorded, 9 found)"


def test_nothing_and_empty_text_differ() -> None:
    assert first_difference([Item("assistant", None)], [Item("assistant", "")]) is not None

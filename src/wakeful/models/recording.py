"""Recorded conversations, read into runs and turns.

The rules, for logs as they are found (each has a test named for it):

- A group of consecutive user and system messages starts a run, which adds them all to the session, in order and
  with their roles. A conversation's first system message is no exception.
- An assistant message is a turn. One that proposes no calls, whatever its text (none included), ends its run; an
  assistant message after that starts a run without a message, and so does one that speaks first.
- A run also ends when the next recorded message is the user's or the system's, or none is left: the model is then
  silent. A last group of messages therefore starts a run without turns.
- A call is known by its turn and its position. Its result is the first result with its id among the unanswered
  calls of the latest turn that has one, then of earlier turns; so ids may repeat or be empty. Results stand with
  their call, whenever they came.
- A call may have no result.
- Content is kept as it is: text, parts, nothing. Reasoning text is dropped.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wakeful.domain.content import Content
from wakeful.domain.errors import InvalidInput, InvalidPayload
from wakeful.domain.payloads import check
from wakeful.domain.runs import Message
from wakeful.domain.tools import ASK_USER, DELEGATE

__all__ = [
    "Inexpressible",
    "RecordedCall",
    "RecordedResult",
    "RecordedRun",
    "RecordedTurn",
    "Recording",
    "read_recording",
]

MAX_NAME_CHARACTERS = 200


class Inexpressible(InvalidInput):
    """A log that the rules cannot turn into runs; the message says which message and why."""

    code = "inexpressible"


@dataclass(frozen=True, slots=True)
class RecordedResult:
    content: Content
    is_error: bool = False


@dataclass(slots=True)
class RecordedCall:
    tool: str
    arguments: str
    """The text as recorded."""
    provider_call_id: str
    result: RecordedResult | None = None


@dataclass(slots=True)
class RecordedTurn:
    content: Content
    calls: list[RecordedCall]
    step: int
    """Its place in its run, from 1."""


@dataclass(slots=True)
class RecordedRun:
    """Messages that start a run, and the turns that answer them. Either may be empty, never both."""

    messages: list[Message] = field(default_factory=list)
    turns: list[RecordedTurn] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the latest turn is final."""
        return bool(self.turns) and not self.turns[-1].calls


@dataclass(frozen=True, slots=True)
class Recording:
    id: str
    runs: tuple[RecordedRun, ...]

    @property
    def turns(self) -> list[RecordedTurn]:
        """Every assistant message of the conversation, in order."""
        return [turn for run in self.runs for turn in run.turns]

    @property
    def calls(self) -> list[RecordedCall]:
        return [call for turn in self.turns for call in turn.calls]


def read_recording(line: Mapping[str, Any]) -> Recording:
    """One line of a recording file as runs. Raises Inexpressible."""
    identity, messages = line.get("id"), line.get("messages")
    if not isinstance(identity, str) or not identity:
        raise Inexpressible("the conversation has no id")
    if not isinstance(messages, list) or not messages:
        raise Inexpressible("the conversation has no messages")
    reader = _Reader()
    for index, message in enumerate(messages):
        try:
            reader.add(message)
        except (Inexpressible, InvalidPayload) as error:
            raise Inexpressible(f"message {index}: {error}") from None
    return Recording(identity, tuple(reader.runs))


class _Reader:
    def __init__(self) -> None:
        self.runs: list[RecordedRun] = []

    def add(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise Inexpressible("it is no JSON object")
        match message.get("role"):
            case "user" | "system" as role:
                self._open_for_message().messages.append(Message(_content(message), role))
            case "assistant":
                run = self._open_for_turn()
                calls = [_call(call) for call in message.get("tool_calls") or []]
                run.turns.append(RecordedTurn(_content(message), calls, len(run.turns) + 1))
            case "tool":
                self._answer(message)
            case role:
                raise Inexpressible(f"role {role!r} is none of system, user, assistant, tool")

    def _open_for_message(self) -> RecordedRun:
        if not self.runs or self.runs[-1].turns:
            self.runs.append(RecordedRun())
        return self.runs[-1]

    def _open_for_turn(self) -> RecordedRun:
        if not self.runs or self.runs[-1].ended:
            self.runs.append(RecordedRun())
        return self.runs[-1]

    def _answer(self, message: dict[str, Any]) -> None:
        identity = message.get("tool_call_id") or ""
        for run in reversed(self.runs):
            for turn in reversed(run.turns):
                for call in turn.calls:
                    if call.provider_call_id == identity and call.result is None:
                        call.result = RecordedResult(_content(message), bool(message.get("is_error")))
                        return
        raise Inexpressible(f"a tool result for id {identity!r}, which no unanswered call has")


def _content(message: dict[str, Any]) -> Content:
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) for part in content):
            raise Inexpressible("a part of its content is no JSON object")
    elif content is not None and not isinstance(content, str):
        raise Inexpressible("its content is neither text nor parts nor null")
    return check(content)  # type: ignore[no-any-return]


def _call(call: Any) -> RecordedCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise Inexpressible("a tool call without a function")
    tool, arguments = function.get("name"), function.get("arguments")
    if not isinstance(tool, str) or not 0 < len(check(tool)) <= MAX_NAME_CHARACTERS:
        raise Inexpressible(f"a tool call's name must have 1 to {MAX_NAME_CHARACTERS} characters")
    if tool in (ASK_USER, DELEGATE):
        raise Inexpressible(f"{tool} is a built-in tool: its calls are answered by people and runs")
    if not isinstance(arguments, str):
        raise Inexpressible(f"the arguments of {tool} are no text")
    identity = call.get("id") or ""
    if not isinstance(identity, str):
        raise Inexpressible(f"the id of a call of {tool} is no text")
    _check_arguments(tool, check(arguments))
    return RecordedCall(tool, arguments, check(identity))


def _check_arguments(tool: str, text: str) -> None:
    # A worker refuses these, as it would a model's, so the recorded result could not come out.
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise Inexpressible(f"the arguments of {tool} are no valid JSON") from None
    if not isinstance(value, dict):
        raise Inexpressible(f"the arguments of {tool} are no JSON object")
    check(value)

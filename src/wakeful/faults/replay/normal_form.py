"""The normal form in which a replayed session and its recording are compared.

- Messages, turns and results in order, compared by role, content, tool name, argument text and provider call id,
  every one verbatim. Content is text, parts or nothing; an artifact stands for what it holds.
- The results of a turn stand right behind it, in the order of its calls.
- A result with the code `no_result` equals no result.
- A result is compared by its content and by whether it is an error. Anything else a call may end with (refused,
  cancelled, uncertain) has no counterpart in a recording and differs.
- A conversation may end with any item.
- Reasoning text is on neither side.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from wakeful.domain.content import ArtifactRef, CallResult, ProposedCall
from wakeful.domain.history import CallRecord, Conversation, MessageEntry, TurnEntry
from wakeful.domain.states import InvocationStatus
from wakeful.faults.replay.workload import NO_RESULT, RECORDED_ERROR
from wakeful.models.recording import RecordedTurn, Recording

__all__ = ["Fetch", "Item", "first_difference", "of_recording", "of_session"]

Fetch = Callable[[ArtifactRef], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Item:
    """One message, turn or result. `calls` of a turn: tool, argument text, provider call id."""

    role: str
    content: Any
    calls: tuple[tuple[str, str, str], ...] = ()
    tool: str = ""
    ended: str = ""
    """How a call ended: `ok`, `error`, or words that no recording has."""


def of_recording(recording: Recording) -> list[Item]:
    """The items of a recording."""
    items: list[Item] = []
    for run in recording.runs:
        items.extend(Item(message.role, message.content) for message in run.messages)
        for turn in run.turns:
            items.extend(_recorded_turn(turn))
    return items


async def of_session(conversation: Conversation, fetch: Fetch) -> list[Item]:
    """The items of a session's history."""
    items: list[Item] = []
    for entry in conversation.entries:
        if isinstance(entry, MessageEntry):
            items.append(Item(entry.role, await _plain(entry.content, fetch)))
        elif isinstance(entry, TurnEntry):
            calls = tuple([await _call(record.call, fetch) for record in entry.calls])
            items.append(Item("assistant", await _plain(entry.content, fetch), calls))
            items.extend([item for record in entry.calls if (item := await _result(record, fetch)) is not None])
        else:
            items.append(Item("note", None))
    return items


def first_difference(recorded: list[Item], replayed: list[Item]) -> str | None:
    """Where the two part, None if nowhere. Names places and lengths, never content."""
    for index, (wanted, found) in enumerate(zip_longest(recorded, replayed)):
        if wanted != found:
            return f"item {index}: {_difference(wanted, found)}"
    return None


def _difference(wanted: Item | None, found: Item | None) -> str:
    if wanted is None and found is not None:
        return f"{_kind(found)} that the recording does not have"
    if wanted is None or found is None:
        return f"{_kind(wanted)} is missing" if wanted is not None else "nothing"
    if wanted.role != found.role:
        return f"{_kind(found)} instead of {_kind(wanted)}"
    if wanted.content != found.content:
        return f"content of {_kind(wanted)} differs{_place(wanted.content, found.content)}"
    if wanted.calls != found.calls:
        return _calls_difference(wanted, found)
    if wanted.tool != found.tool:
        return f"a result of {found.tool} instead of one of {wanted.tool}"
    return f"the result of {wanted.tool} ended as {found.ended}, recorded as {wanted.ended}"


def _calls_difference(wanted: Item, found: Item) -> str:
    if len(wanted.calls) != len(found.calls):
        return f"{len(found.calls)} calls instead of {len(wanted.calls)}"
    for position, (one, other) in enumerate(zip(wanted.calls, found.calls, strict=True)):
        for what, ours, theirs in zip(("tool", "arguments", "provider call id"), one, other, strict=True):
            if ours != theirs:
                return f"{what} of call {position} ({one[0]}) differ{_place(ours, theirs)}"
    return "nothing"


def _kind(item: Item) -> str:
    return f"a result of {item.tool} ({item.ended})" if item.role == "tool" else f"a message of role {item.role}"


def _place(one: Any, other: Any) -> str:
    if not (isinstance(one, str) and isinstance(other, str)):
        return f" ({type(one).__name__} recorded, {type(other).__name__} found)"
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f" from character {same} on ({len(one)} recorded, {len(other)} found)"


def _recorded_turn(turn: RecordedTurn) -> list[Item]:
    calls = tuple((call.tool, call.arguments, call.provider_call_id) for call in turn.calls)
    results = [
        Item("tool", call.result.content, tool=call.tool, ended="error" if call.result.is_error else "ok")
        for call in turn.calls
        if call.result is not None
    ]
    return [Item("assistant", turn.content, calls), *results]


async def _call(call: ProposedCall, fetch: Fetch) -> tuple[str, str, str]:
    return call.tool, await _plain(call.arguments, fetch), call.provider_call_id


async def _result(record: CallRecord, fetch: Fetch) -> Item | None:
    result = record.result
    if result is None or result.code == NO_RESULT:
        return None
    content = await _plain(result.artifact if result.artifact is not None else result.data, fetch)
    return Item("tool", content, tool=record.call.tool, ended=_ended(result))


def _ended(result: CallResult) -> str:
    if result.status is InvocationStatus.COMPLETED and result.code == "ok":
        return "ok"
    if result.status is InvocationStatus.FAILED and result.code == RECORDED_ERROR:
        return "error"
    return f"{result.status.lower()} ({result.code})"


async def _plain(value: Any, fetch: Fetch) -> Any:
    if not isinstance(value, ArtifactRef):
        return value
    data = await fetch(value)
    return json.loads(data) if value.media_type == "application/json" else data.decode()

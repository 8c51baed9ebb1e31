"""The model provider port: one request, one response, with streaming, usage and opaque continuation."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from wakeful.domain.content import CallResult, Content, ProposedCall, Usage
from wakeful.domain.runs import Run

__all__ = ["ModelMessage", "ModelProvider", "ModelRequest", "ModelResponse", "ToolSchema"]


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of a request. `tool` messages carry the result of the call that `call_id` names; calls and
    results are paired by ids of our own (`s<step>p<position>`), since providers' ids repeat and may be empty."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content = None
    calls: tuple[ProposedCall, ...] = ()
    call_ids: tuple[str, ...] = ()
    call_id: str | None = None
    result: CallResult | None = None


@dataclass(frozen=True, slots=True)
class ToolSchema:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a provider is asked. `turn_index` counts the session's assistant messages so far (from 0).

    With `purpose` "summary" the last message asks for a summary of those before it, which becomes no turn.
    """

    run: Run
    agent: str
    model: str
    messages: Sequence[ModelMessage]
    tools: Sequence[ToolSchema] = ()
    step: int = 1
    turn_index: int = 0
    continuation: JsonValue = None
    purpose: Literal["turn", "summary"] = "turn"


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """What came back. `silent` says the provider has nothing to say and the run ends."""

    content: Content = None
    calls: tuple[ProposedCall, ...] = ()
    silent: bool = False
    finish_reason: str = "stop"
    usage: Usage = Usage()
    continuation: JsonValue = None


OnDelta = Callable[[str], Awaitable[None]]


class ModelProvider(Protocol):
    """A model API. Holds no state between calls that a crash could lose."""

    name: str

    async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        """One model call; `on_delta` is told pieces of text as they come. Raises TransientModelError or
        PermanentModelError; anything else it raises counts as permanent."""
        ...

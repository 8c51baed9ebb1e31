"""Tools: what a team registers, what a tool function receives, what it may raise."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import IdempotencyClass

__all__ = [
    "ASK_USER",
    "DELEGATE",
    "DidNotHappen",
    "Happened",
    "Reconcile",
    "RetryPolicy",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolFunction",
]

DEFAULT_TIMEOUT = timedelta(seconds=60)


class ToolFailed(Exception):
    """Raised by a tool: it failed, and nothing was done. The only exception that lets a non-idempotent
    call be FAILED; anything else it raises makes it UNCERTAIN. `code` is a stable word for the model."""

    def __init__(self, message: str, *, code: str = "tool_failed", data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts inside the step, with exponential backoff and full jitter. Non-idempotent tools get one attempt."""

    attempts: int = 3
    first_delay: timedelta = timedelta(milliseconds=200)
    max_delay: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a tool function may know of its call. `key` is the same on every attempt: hand it to the service."""

    key: str
    tool: str
    run: RunRef
    scope: Scope
    step: int
    position: int
    attempt: int
    """From 1."""
    context_updates: dict[str, Any] = field(default_factory=dict)
    """What the tool puts in here is kept with the call's result; drivers find it in their view, also after a crash."""


ToolFunction = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Happened:
    """What a reconcile function says of a call that was carried out; `result` stands for what the tool would have
    returned."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """What a reconcile function says of a call that was not carried out, and will not be any more."""

    message: str = ""


Reconcile = Callable[[str], Awaitable[Happened | DidNotHappen | None]]
"""Asks the tool's service what became of the call with this key. None says that the service does not know."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered tool. `function(call, **arguments)` runs on the worker's loop; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    idempotency: IdempotencyClass
    function: ToolFunction
    validate: Callable[[Any], dict[str, Any]]
    """Arguments as the model gave them to keyword arguments; raises ValueError naming what is wrong."""
    timeout: timedelta = DEFAULT_TIMEOUT
    retry: RetryPolicy = RetryPolicy()
    approval: bool = False
    approval_expires: timedelta | None = None
    reconcile: Reconcile | None = None
    """Asked before a call becomes UNCERTAIN. It only looks: it may be asked any number of times."""


ASK_USER = "conversation.ask_user"
"""Built in: asks the owner a question, `{"question": str}`; the answer is the call's result."""

DELEGATE = "agent.delegate"
"""Built in: `{"agent": str, "input": str}` starts a child run; its final reply is the call's result."""

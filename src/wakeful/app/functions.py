"""A team's function, made into a Tool."""

import asyncio
import functools
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from wakeful.app.signatures import Signature, read_signature
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.states import IdempotencyClass
from wakeful.domain.tools import Reconcile, RetryPolicy, Tool, ToolCall, ToolFunction

__all__ = ["idempotency_class", "make_tool", "positive_seconds"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def make_tool(
    function: Callable[..., Any],
    *,
    name: str | None,
    idempotency: str | IdempotencyClass,
    timeout_seconds: float,
    retry: RetryPolicy,
    approval: bool,
    approval_expires_seconds: float | None,
    reconcile: Callable[[str], Any] | None = None,
) -> Tool:
    """The Tool that calls `function`; one that is not async runs in a thread and must be safe there.

    Raises ConfigurationError naming the tool and what to change.
    """
    tool = name if name is not None else function.__name__
    if not _NAME.fullmatch(tool):
        raise ConfigurationError(
            f"tool name {tool!r}: use 1 to 64 letters, digits, underscores, dots and dashes, a letter first"
        )
    signature = read_signature(function, tool)
    expires = None
    if approval_expires_seconds is not None:
        expires = positive_seconds(approval_expires_seconds, f"tool {tool!r}: approval_expires_seconds")
    repeating = idempotency_class(idempotency, tool)
    return Tool(
        name=tool,
        description=inspect.cleandoc(function.__doc__ or ""),
        parameters=signature.parameters,
        idempotency=repeating,
        function=_callable(function, signature),
        validate=signature.validate,
        timeout=positive_seconds(timeout_seconds, f"tool {tool!r}: timeout_seconds"),
        retry=retry,
        approval=approval,
        approval_expires=expires,
        reconcile=None if reconcile is None else _reconcile(reconcile, repeating, tool),
    )


def idempotency_class(value: str | IdempotencyClass, tool: str) -> IdempotencyClass:
    """Raises ConfigurationError for anything but the four classes."""
    try:
        return IdempotencyClass(value)
    except ValueError:
        classes = ", ".join(IdempotencyClass)
        raise ConfigurationError(f"tool {tool!r}: idempotency {value!r} is none of {classes}") from None


def _reconcile(function: Callable[[str], Any], idempotency: IdempotencyClass, tool: str) -> Reconcile:
    """Raises ConfigurationError for what cannot be called with a key, and for a tool that never becomes UNCERTAIN."""
    if idempotency in (IdempotencyClass.READ_ONLY, IdempotencyClass.IDEMPOTENT):
        raise ConfigurationError(
            f"tool {tool!r}: reconcile is for calls that nobody may repeat; {idempotency} ones are just repeated"
        )
    try:
        inspect.signature(function).bind("key")
    except (TypeError, ValueError):
        raise ConfigurationError(f"tool {tool!r}: reconcile must be a function of the call's key alone") from None
    is_async = inspect.iscoroutinefunction(function)

    async def ask(key: str) -> Any:
        return await function(key) if is_async else await asyncio.to_thread(function, key)

    return ask


def positive_seconds(value: float, what: str) -> timedelta:
    """A finite length of more than nothing. Raises ConfigurationError."""
    if not 0 < value < float("inf"):
        raise ConfigurationError(f"{what} must be a positive number of seconds, not {value!r}")
    return timedelta(seconds=value)


def _callable(function: Callable[..., Any], signature: Signature) -> ToolFunction:
    is_async = inspect.iscoroutinefunction(function)

    async def run(call: ToolCall, /, **arguments: Any) -> Any:
        given = functools.partial(function, call) if signature.takes_call else function
        if is_async:
            return await given(**arguments)
        return await asyncio.to_thread(given, **arguments)

    return functools.update_wrapper(run, function)

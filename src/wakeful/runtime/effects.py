"""Running a tool function: timeout, retries by class, and one outcome whatever it does.

| what the function does | read_only, idempotent | conditionally_idempotent | non_idempotent |
|---|---|---|---|
| returns | COMPLETED | COMPLETED | COMPLETED |
| raises ToolFailed (nothing was done) | FAILED | FAILED | FAILED |
| raises anything else, runs out of time | again, then FAILED | again (same key), then UNCERTAIN | UNCERTAIN |

UNCERTAIN is said only after the tool's service was asked, where the tool declares how (`wakeful.runtime.reconciling`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from wakeful.domain.content import CallResult
from wakeful.domain.errors import InvalidPayload
from wakeful.domain.payloads import repair_text
from wakeful.domain.states import IdempotencyClass, InvocationStatus
from wakeful.domain.tools import Tool, ToolCall, ToolFailed
from wakeful.runtime.attempts import Raised, attempt_once
from wakeful.runtime.retries import delay
from wakeful.runtime.safe import describe, storable

__all__ = ["Effect", "completed", "run_tool", "seconds_for"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a tool call came to."""

    result: CallResult
    context_updates: dict[str, Any] | None = None
    repaired: int = 0


async def run_tool(
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    *,
    time_left: Callable[[], timedelta | None],
    may_start: Callable[[], bool],
    cancel_grace: timedelta,
) -> Effect:
    """Execute the call. `time_left` is what the run's deadline leaves (None: no deadline); `may_start` is asked before
    every further attempt. Raises only CancelledError, when the caller is cancelled."""
    attempts = tool.retry.attempts if tool.idempotency is not IdempotencyClass.NON_IDEMPOTENT else 1
    attempt = 0
    while True:
        attempt += 1
        this = replace(call, attempt=call.attempt + attempt - 1, context_updates={})
        outcome = await attempt_once(
            partial(tool.function, this, **arguments), seconds_for(tool, time_left()), cancel_grace
        )
        if not isinstance(outcome, Raised):
            return completed(outcome, this)
        if isinstance(outcome.error, ToolFailed):
            return Effect(_failed(outcome.error))
        pause = delay(tool.retry, attempt)
        left = time_left()
        if attempt >= attempts or (left is not None and left <= pause):
            return Effect(_unknown(tool, outcome.error))
        await asyncio.sleep(pause.total_seconds())
        if not may_start():
            return Effect(_unknown(tool, outcome.error))


def seconds_for(tool: Tool, left: timedelta | None) -> float:
    allowed = tool.timeout if left is None else min(tool.timeout, left)
    return max(allowed.total_seconds(), 0.0)


def completed(value: Any, call: ToolCall) -> Effect:
    try:
        stored = storable(value)
        updates = storable(call.context_updates).value if call.context_updates else None
    except InvalidPayload as error:
        message = f"the tool returned, but its result cannot be stored: {error}"
        return Effect(CallResult(status=InvocationStatus.COMPLETED, code="result_unreadable", message=message))
    result = CallResult(status=InvocationStatus.COMPLETED, code="ok", data=stored.value)
    return Effect(result, updates, stored.replaced)


def _failed(error: ToolFailed) -> CallResult:
    try:
        data = storable(error.data).value
    except InvalidPayload:
        data = None
    message = describe(error).partition(": ")[2]
    return CallResult(status=InvocationStatus.FAILED, code=repair_text(str(error.code)), message=message, data=data)


def _unknown(tool: Tool, error: BaseException) -> CallResult:
    timed_out = isinstance(error, TimeoutError)
    code = "timed_out" if timed_out else "tool_error"
    if tool.idempotency in (IdempotencyClass.READ_ONLY, IdempotencyClass.IDEMPOTENT):
        return CallResult(status=InvocationStatus.FAILED, code=code, message=describe(error))
    message = f"the outcome is unknown: {describe(error)}. It may or may not have happened; do not assume either."
    return CallResult(status=InvocationStatus.UNCERTAIN, code=code, message=message)

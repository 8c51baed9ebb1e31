"""Running a tool function: timeout, retries by class, and one outcome whatever it does.

| what the function does | read_only, idempotent | conditionally_idempotent | non_idempotent |
|---|---|---|---|
| returns | COMPLETED | COMPLETED | COMPLETED |
| raises ToolFailed (nothing was done) | FAILED | FAILED | FAILED |
| raises anything else, runs out of time | again, then FAILED | again (same key), then UNCERTAIN | UNCERTAIN |

A function that goes on after its time is cancelled, given a moment to clean up, and left behind; what it returns
then is dropped and counted.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import Counter

from wakeful.domain.content import CallResult
from wakeful.domain.errors import InvalidPayload
from wakeful.domain.payloads import repair_text
from wakeful.domain.states import IdempotencyClass, InvocationStatus
from wakeful.domain.tools import Tool, ToolCall, ToolFailed
from wakeful.runtime.retries import delay
from wakeful.runtime.safe import describe, storable

__all__ = ["Effect", "run_tool"]

_log = structlog.get_logger(__name__)
LATE_RESULTS = Counter("wakeful_tool_late_results_total", "Tool results that came after their call had ended.")


@dataclass(frozen=True, slots=True)
class Effect:
    """What a tool call came to."""

    result: CallResult
    context_updates: dict[str, Any] | None = None
    repaired: int = 0


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


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
        outcome = await _attempt(tool, this, arguments, _timeout(tool, time_left()), cancel_grace)
        if not isinstance(outcome, _Raised):
            return _completed(outcome, this)
        if isinstance(outcome.error, ToolFailed):
            return Effect(_failed(outcome.error))
        pause = delay(tool.retry, attempt)
        left = time_left()
        if attempt >= attempts or (left is not None and left <= pause):
            return Effect(_unknown(tool, outcome.error))
        await asyncio.sleep(pause.total_seconds())
        if not may_start():
            return Effect(_unknown(tool, outcome.error))


def _timeout(tool: Tool, left: timedelta | None) -> float:
    allowed = tool.timeout if left is None else min(tool.timeout, left)
    return max(allowed.total_seconds(), 0.0)


async def _attempt(tool: Tool, call: ToolCall, arguments: dict[str, Any], seconds: float, grace: timedelta) -> Any:
    task = asyncio.ensure_future(_guarded(tool, call, arguments))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            await _leave(task, grace)
            return _Raised(TimeoutError(f"no result within {seconds:g} s"))
    except asyncio.CancelledError:
        await _leave(task, grace)
        raise
    if task.cancelled():
        return _Raised(RuntimeError("the tool cancelled itself"))
    return task.result()


async def _guarded(tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> Any:
    try:
        return await tool.function(call, **arguments)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return _Raised(error)


async def _leave(task: "asyncio.Task[Any]", grace: timedelta) -> None:
    """Cancel the task; if it does not end within the grace time, leave it behind and count what it returns."""
    task.cancel()
    await asyncio.wait({task}, timeout=grace.total_seconds())
    if task.done():
        _count_late(task)
    else:
        task.add_done_callback(_count_late)


def _count_late(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and not isinstance(task.result(), _Raised):
        LATE_RESULTS.inc()
        _log.warning("tool.late_result_dropped")


def _completed(value: Any, call: ToolCall) -> Effect:
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

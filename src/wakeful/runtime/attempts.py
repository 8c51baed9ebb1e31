"""Calling a team's function once, within its time, whatever it does.

A function that goes on after its time is cancelled, given a moment to clean up, and left behind; what it returns then
is dropped and counted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import Counter

__all__ = ["LATE_RESULTS", "Raised", "attempt_once"]

_log = structlog.get_logger(__name__)
LATE_RESULTS = Counter("wakeful_tool_late_results_total", "Tool results that came after their call had ended.")


@dataclass(frozen=True, slots=True)
class Raised:
    """What came instead of a result."""

    error: BaseException


async def attempt_once(function: Callable[[], Awaitable[Any]], seconds: float, grace: timedelta) -> Any:
    """What the function returns, or Raised. Raises only CancelledError, when the caller is cancelled."""
    task = asyncio.ensure_future(_guarded(function))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            await _leave(task, grace)
            return Raised(TimeoutError(f"no result within {seconds:g} s"))
    except asyncio.CancelledError:
        await _leave(task, grace)
        raise
    if task.cancelled():
        return Raised(RuntimeError("the tool cancelled itself"))
    return task.result()


async def _guarded(function: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await function()
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return Raised(error)


async def _leave(task: "asyncio.Task[Any]", grace: timedelta) -> None:
    """Cancel the task; if it does not end within the grace time, leave it behind and count what it returns."""
    task.cancel()
    await asyncio.wait({task}, timeout=grace.total_seconds())
    if task.done():
        _count_late(task)
    else:
        task.add_done_callback(_count_late)


def _count_late(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and not isinstance(task.result(), Raised):
        LATE_RESULTS.inc()
        _log.warning("tool.late_result_dropped")

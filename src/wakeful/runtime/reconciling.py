"""Asking a tool's service what became of a call, before the call is said to be UNCERTAIN.

| the tool's `reconcile` | the call's one result |
|---|---|
| is not declared | UNCERTAIN |
| returns Happened | COMPLETED, with what it says the result was |
| returns DidNotHappen | FAILED, as if the tool had raised ToolFailed: the model decides whether to try again |
| returns None, or what is none of these | UNCERTAIN |
| raises, or takes longer than the tool may | asked again by the tool's retry policy, then UNCERTAIN |

It only looks, so a worker that dies here, or is called away, costs nothing: whoever takes the run up asks again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from wakeful.domain.content import CallResult
from wakeful.domain.payloads import repair_text
from wakeful.domain.states import InvocationStatus
from wakeful.domain.tools import DidNotHappen, Happened, Reconcile, Tool, ToolCall
from wakeful.runtime.attempts import Raised, attempt_once
from wakeful.runtime.effects import Effect, completed, seconds_for
from wakeful.runtime.retries import delay
from wakeful.runtime.safe import describe

__all__ = ["reconciled"]

_log = structlog.get_logger(__name__)


async def reconciled(
    tool: Tool, call: ToolCall, unknown: Effect, *, time_left: Callable[[], timedelta | None], cancel_grace: timedelta
) -> Effect:
    """What the call came to by its service's word; `unknown` when there is none. Raises only CancelledError."""
    if tool.reconcile is None:
        return unknown
    said = await _ask(tool, tool.reconcile, call.key, time_left, cancel_grace)
    match said:
        case Happened():
            effect = completed(said.result, call)
            code = "reconciled" if effect.result.code == "ok" else effect.result.code
            return replace(effect, result=effect.result.model_copy(update={"code": code}))
        case DidNotHappen():
            why = repair_text(str(said.message))
            message = f"it did not happen, says its service{': ' if why else ''}{why}"
            return Effect(CallResult(status=InvocationStatus.FAILED, code="did_not_happen", message=message))
        case _:
            return unknown


async def _ask(
    tool: Tool,
    reconcile: Reconcile,
    key: str,
    time_left: Callable[[], timedelta | None],
    grace: timedelta,
) -> Any:
    attempt = 0
    while True:
        attempt += 1
        said = await attempt_once(partial(reconcile, key), seconds_for(tool, time_left()), grace)
        if not isinstance(said, Raised):
            if not isinstance(said, Happened | DidNotHappen | None):
                _log.error("tool.reconcile_unreadable", tool=tool.name, returned=type(said).__name__)
            return said
        _log.warning("tool.reconcile_failed", tool=tool.name, attempt=attempt, error=describe(said.error))
        pause, left = delay(tool.retry, attempt), time_left()
        if attempt >= tool.retry.attempts or (left is not None and left <= pause):
            return None
        await asyncio.sleep(pause.total_seconds())

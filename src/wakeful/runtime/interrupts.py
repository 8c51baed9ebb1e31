"""Waiting for the outside, and being called away from it: a lost lease, a cancel, a drain."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from wakeful.domain.errors import Fenced
from wakeful.runtime.holding import Holding

__all__ = ["Cancelled", "Draining", "Interrupted", "check", "interrupted", "outside"]

T = TypeVar("T")


class Interrupted(Exception):
    """Something outside asks the run to stop what it is doing."""


class Cancelled(Interrupted):
    """The owner asked to cancel the run."""


class Draining(Interrupted):
    """The process is stopping."""


def interrupted(holding: Holding) -> bool:
    return holding.lost or holding.cancel_requested or holding.draining


def check(holding: Holding) -> None:
    """Raise the most urgent reason to stop: Fenced, Cancelled, Draining."""
    if holding.lost:
        raise Fenced(holding.lease.run.run_id, holding.lease.epoch)
    if holding.cancel_requested:
        raise Cancelled
    if holding.draining:
        raise Draining


async def outside(holding: Holding, awaitable: Awaitable[T]) -> T:
    """Await something outside, with no transaction open. When the run is called away the awaitable is cancelled and
    the reason raised; whatever it would still have returned is dropped."""
    task = asyncio.ensure_future(awaitable)
    try:
        with holding.waiting_outside():
            await _done_or_interrupted(holding, task)
        if task.done() and not interrupted(holding):
            return task.result()
        check(holding)
        return await task
    finally:
        task.cancel()


async def _done_or_interrupted(holding: Holding, task: "asyncio.Future[Any]") -> None:
    # Only this waiter clears the event, and it looks at the flags after clearing: no change is missed. The task's end
    # sets it as well, so that one wait serves both.
    task.add_done_callback(lambda _: holding.changed.set())
    while not task.done():
        holding.changed.clear()
        if interrupted(holding):
            return
        await holding.changed.wait()

"""Outlasting a database that is out of reach: what is redone here is safe to redo."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import structlog

from wakeful.domain.errors import Fenced, Unavailable
from wakeful.runtime.holding import Holding

__all__ = ["until_answered"]

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_SECONDS = 0.05

T = TypeVar("T")


async def until_answered(holding: Holding, longest_pause: timedelta, attempt: Callable[[], Awaitable[T]]) -> T:
    """Try until the database answers. `attempt` must be safe to repeat after an unknown outcome: the same ids.

    The heartbeat, not this loop, decides when the lease is lost: then Fenced is raised. A draining process waits as
    well, for as long as its grace lets this go on: after a short outage the run is handed back, not left to its lease.
    """
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            if holding.lost:
                raise Fenced(holding.lease.run.run_id, holding.lease.epoch) from error
            _log.warning("run.database_unavailable", error=error.code)
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest_pause.total_seconds())

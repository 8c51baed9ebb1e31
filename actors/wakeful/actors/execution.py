"""What the pool asks of others: executing a run, executing a suspect, and being called regularly."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

__all__ = ["Executes", "ExecutesSuspects", "SuspectDied", "Ticks"]


class Executes(Protocol):
    async def execute(self, holding: Holding) -> Ending:
        """Execute the run until this worker lets go of it; never raises for anything a run does."""
        ...


class SuspectDied(Exception):
    """The process of a suspect ended without a word; `cause` says how."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class ExecutesSuspects(Protocol):
    async def execute(self, holding: Holding, *, renewing: Callable[[], None]) -> Ending:
        """Execute the run alone in a process of its own. That process renews the lease itself from the moment
        `renewing` is called; until then, while it starts, the caller does. Raises SuspectDied as soon as the process
        ended without an ending. Cancelled, it leaves no process behind."""
        ...

    async def stop(self) -> None:
        """End every process; safe to call twice."""
        ...


class Ticks(Protocol):
    """Something that calls functions at intervals (`wakeful.scheduler.ticker.Ticker`)."""

    def every(self, interval: timedelta, tick: Callable[[], Awaitable[object]], *, name: str) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

"""What the client works on: the ports, however they were composed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from wakeful.domain.errors import ConfigurationError, OutcomeUnknown, Unavailable
from wakeful.domain.ports.artifacts import Artifacts
from wakeful.domain.ports.event_hints import EventHints
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.ports.run_control import RunControl
from wakeful.domain.ports.run_queue import RunQueue
from wakeful.domain.ports.sessions import RunReader, Sessions
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.domain.runs import Submission, Submitted

__all__ = ["Backend", "CallerSubmit", "Ports", "surely"]

Result = TypeVar("Result")
CallerSubmit = Callable[[Any, Submission], Awaitable[Submitted]]
"""Submits inside a transaction of the caller's; its first argument is the caller's connection."""

REDO_SECONDS = 10.0
FIRST_REDO_SECONDS = 0.05


class Ports(Protocol):
    """A store, PostgreSQL's or the one in memory."""

    @property
    def log(self) -> EventLog: ...
    @property
    def queue(self) -> RunQueue: ...
    @property
    def control(self) -> RunControl: ...
    @property
    def runs(self) -> RunReader: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def artifacts(self) -> Artifacts: ...
    @property
    def event_hints(self) -> EventHints: ...


async def _no_caller_transactions(connection: Any, submission: Submission) -> Submitted:
    raise ConfigurationError("submit(connection=…) needs the PostgreSQL store: this client has another one")


@dataclass(frozen=True, slots=True)
class Backend:
    """A store and what goes with it. `submit_in` is for `submit(connection=…)`."""

    store: Ports
    wakeups: Wakeups = NoWakeups()
    submit_in: CallerSubmit = _no_caller_transactions
    inline_payload_bytes: int = 262_144
    key_kept: timedelta = timedelta(hours=24)


async def surely(action: Callable[[], Awaitable[Result]]) -> Result:
    """Do a write that carries its ids, again while its outcome is unknown, for ten seconds at most.

    Raises Unavailable when the database could not be reached in the first place: nothing was done then.
    """
    loop = asyncio.get_running_loop()
    unknown: OutcomeUnknown | None = None
    pause, deadline = FIRST_REDO_SECONDS, loop.time() + REDO_SECONDS
    while True:
        try:
            return await action()
        except OutcomeUnknown as error:
            unknown = error
        except Unavailable as error:
            if unknown is None:
                raise
            # Of the first attempt we know no more than before.
            unknown.__context__ = error
        if loop.time() + pause > deadline:
            raise unknown
        await asyncio.sleep(pause)
        pause = min(pause * 2, 1.0)

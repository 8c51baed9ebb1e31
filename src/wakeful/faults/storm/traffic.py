"""Runs that keep coming while the storm lasts, and the people who answer them."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from wakeful.client import Call, RunHandle, Wakeful
from wakeful.domain.errors import AlreadyAnswered, Conflict, RunEnded, Unavailable
from wakeful.domain.runs import Run
from wakeful.domain.states import PriorityClass

__all__ = ["Traffic"]

OUTAGE_SECONDS = 60.0
"""The longest that people and agent processes try again."""
LONGEST_SECONDS = 300.0
ATTEND_SECONDS = 0.1
ANSWER = "the red one"

T = TypeVar("T")


@dataclass(slots=True)
class Traffic:
    """`at_once` runs at any time, each the next of `messages` in a session of its own."""

    wakeful: Wakeful
    waiting: Callable[[], Awaitable[Sequence[Run]]]
    """Which runs wait for people now, child runs included."""
    dice: random.Random
    messages: Iterator[tuple[str, str]]
    """Agent and message of each run."""
    at_once: int
    submitted: list[RunHandle] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)
    _closing: bool = False

    async def flow(self) -> None:
        """Until `close`, then until every run has ended. Raises Timeout when one no longer moves."""
        attending = asyncio.create_task(self._attend())
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(self.at_once):
                    lanes.create_task(self._lane())
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)

    def close(self) -> None:
        """Submit no more."""
        self._closing = True

    async def _lane(self) -> None:
        while not self._closing:
            agent, message = next(self.messages)
            session = await outlasting(partial(self.wakeful.sessions.create, agent=agent))
            priority = self.dice.choice(tuple(PriorityClass))
            run = await outlasting(partial(session.submit, message, key=str(session.id), priority=priority))
            self.submitted.append(run)
            self.ended.append(await outlasting(partial(run.wait, timeout=LONGEST_SECONDS)))

    async def _attend(self) -> None:
        """Answer whatever anybody asks."""
        while True:
            for run in await outlasting(self.waiting):
                handle = await outlasting(partial(self.wakeful.runs.get, run.ref.run_id))
                for call in await outlasting(handle.calls):
                    with _somebody_else_did():
                        await outlasting(partial(_answer, handle, call))
            await asyncio.sleep(ATTEND_SECONDS)


async def _answer(run: RunHandle, call: Call) -> object:
    if call.question is not None:
        return await run.answer(ANSWER, call=call.id)
    return await run.approve(call=call.id)


async def outlasting(action: Callable[[], Awaitable[T]]) -> T:
    """Do it again while the database is away: what is said here may be said again."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + OUTAGE_SECONDS
    while True:
        try:
            return await action()
        except Unavailable:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(0.2)


@contextmanager
def _somebody_else_did() -> Iterator[None]:
    """An answer that was sent again after it had arrived, or that came too late."""
    try:
        yield
    except (AlreadyAnswered, Conflict, RunEnded):
        return

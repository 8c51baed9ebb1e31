"""Following a session's log: keyset reads with a growing pause, through every disconnect."""

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import timedelta

from wakeful.domain.errors import Unavailable
from wakeful.domain.events import Event
from wakeful.domain.ports.event_hints import EventHints, Watch
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.scopes import SessionRef

__all__ = ["PATIENCE", "Pause", "batches", "follow"]

PATIENCE = timedelta(minutes=1)
"""How long the database may stay unreachable before a follower gives up."""

PAGE = 500
SHORTEST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5


class Pause:
    """Waits longer each time nothing came, and shortly again as soon as something did. A hint ends it early."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._seconds = watch, SHORTEST_PAUSE_SECONDS

    def reset(self) -> None:
        self._seconds = SHORTEST_PAUSE_SECONDS

    async def __call__(self) -> None:
        await self._watch.wait(timedelta(seconds=self._seconds))
        self._seconds = min(self._seconds * 1.5, LONGEST_PAUSE_SECONDS)


async def batches(
    log: EventLog,
    session: SessionRef,
    *,
    hints: EventHints,
    after: int = 0,
    types: Collection[str] | None = None,
    patience: timedelta = PATIENCE,
) -> AsyncIterator[list[Event]]:
    """Pages of committed events in sequence order, for ever; an empty one whenever nothing new was there, then a
    pause. Raises Unavailable when the database could not be read for as long as `patience`."""
    loop = asyncio.get_running_loop()
    pause = Pause(hints.watch(session))
    reached = loop.time()
    while True:
        try:
            page = await log.read(session, after=after, limit=PAGE, types=types)
        except Unavailable:
            if loop.time() - reached > patience.total_seconds():
                raise
            await pause()
            continue
        reached = loop.time()
        if page:
            after = page[-1].sequence
            pause.reset()
        yield page
        if not page:
            await pause()


async def follow(
    log: EventLog,
    session: SessionRef,
    *,
    hints: EventHints,
    after: int = 0,
    types: Collection[str] | None = None,
) -> AsyncIterator[Event]:
    """Each committed event once, in sequence order, for ever."""
    async for page in batches(log, session, hints=hints, after=after, types=types):
        for event in page:
            yield event

"""Event hints over LISTEN/NOTIFY, beside the appends and never inside them.

NOTIFY takes a lock on the whole database at COMMIT: inside an append it would line up every writer. So an append
commits first, and a connection of its own says afterwards, at most fifty times a second, which sessions have grown.
Failing to say it is logged and forgotten.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from uuid import UUID
from weakref import WeakSet

import psycopg
import structlog

from wakeful.domain.errors import WakefulError
from wakeful.domain.ports.event_hints import Watch
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.connections import Connection

__all__ = ["CHANNEL", "PostgresEventHints"]

_log = structlog.get_logger(__name__)

CHANNEL = "wakeful_events"
COALESCE_SECONDS = 0.02
_PAYLOAD_BYTES = 7_900
"""PostgreSQL refuses 8,000 and more."""
_RETRY_SECONDS = 1.0

Connect = Callable[[], Awaitable[Connection]]


class _Watch:
    """One reader's ear."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def wait(self, at_most: timedelta) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.heard.wait(), at_most.total_seconds())
        self.heard.clear()


class PostgresEventHints:
    """Sends and receives on two connections that are made when first needed; for one event loop.

    `connect` has to reach PostgreSQL itself: a pooler in transaction mode forgets LISTEN.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._grown: set[UUID] = set()
        self._watches: dict[UUID, WeakSet[_Watch]] = {}
        self._speaking: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._voice: Connection | None = None
        self._closed = False

    def grown(self, session: SessionRef) -> None:
        self._grown.add(session.session_id)
        if not self._closed and (self._speaking is None or self._speaking.done()):
            self._speaking = asyncio.create_task(self._speak(), name="event hints")

    def watch(self, session: SessionRef) -> Watch:
        if not self._closed and self._listening is None:
            self._listening = asyncio.create_task(self._listen(), name="event hints listener")
        self._watches = {key: watches for key, watches in self._watches.items() if watches}
        watch = _Watch()
        self._watches.setdefault(session.session_id, WeakSet()).add(watch)
        return watch

    async def close(self) -> None:
        self._closed = True
        tasks = [task for task in (self._speaking, self._listening) if task is not None]
        self._speaking = self._listening = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fall_silent()
        self._heard(list(self._watches))

    async def _speak(self) -> None:
        """Say what has grown, until nothing grows any more."""
        while self._grown:
            await asyncio.sleep(COALESCE_SECONDS)
            grown, self._grown = self._grown, set()
            try:
                if self._voice is None:
                    self._voice = await self._connect()
                for payload in _payloads(grown):
                    await self._voice.execute(b"SELECT pg_notify(%s, %s)", (CHANNEL, payload))
            except (psycopg.Error, WakefulError) as error:
                _log.warning("event_hints.not_sent", sessions=len(grown), error=type(error).__name__)
                self._fall_silent()
                await asyncio.sleep(_RETRY_SECONDS)

    def _fall_silent(self) -> None:
        if self._voice is not None:
            self._voice.pgconn.finish()
            self._voice = None

    async def _listen(self) -> None:
        while True:
            try:
                connection = await self._connect()
                try:
                    await connection.execute(f"LISTEN {CHANNEL}".encode())
                    self._heard(list(self._watches))  # of what was said while nobody listened
                    async for notification in connection.notifies():
                        self._heard(UUID(hex=part) for part in notification.payload.split(","))
                finally:
                    connection.pgconn.finish()
            except (psycopg.Error, WakefulError, ValueError) as error:
                _log.warning("event_hints.not_listening", error=type(error).__name__)
            await asyncio.sleep(_RETRY_SECONDS)

    def _heard(self, sessions: Iterable[UUID]) -> None:
        for session in sessions:
            for watch in self._watches.get(session, ()):
                watch.heard.set()


def _payloads(sessions: set[UUID]) -> Iterator[str]:
    """Ids only, in as few notifications as their size allows."""
    per_payload = _PAYLOAD_BYTES // 33
    ordered = [session.hex for session in sorted(sessions)]
    for start in range(0, len(ordered), per_payload):
        yield ",".join(ordered[start : start + per_payload])

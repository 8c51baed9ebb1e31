"""Port: hints that a session's log has grown. Losing every one costs its readers a pause each, never an event."""

import asyncio
from datetime import timedelta
from typing import Protocol

from wakeful.domain.scopes import SessionRef

__all__ = ["EventHints", "NoEventHints", "Watch"]


class Watch(Protocol):
    async def wait(self, at_most: timedelta) -> None:
        """Return when the session may have grown since the watch began or last returned, at the latest after
        `at_most`."""
        ...


class EventHints(Protocol):
    def grown(self, session: SessionRef) -> None:
        """Say that something was committed to the session. Returns at once, never blocks, never raises; what is said
        faster than it can be sent is coalesced. Only after the commit: never inside a transaction."""
        ...

    def watch(self, session: SessionRef) -> Watch:
        """Begin to watch: a hint that comes before the first wait is not lost. It ends when the watch is dropped."""
        ...

    async def close(self) -> None:
        """Safe to call twice; waits still under way return."""
        ...


class _Pause:
    async def wait(self, at_most: timedelta) -> None:
        await asyncio.sleep(at_most.total_seconds())


class NoEventHints:
    """Every hint lost: readers look again after their pause."""

    def grown(self, session: SessionRef) -> None:
        return

    def watch(self, session: SessionRef) -> Watch:
        return _Pause()

    async def close(self) -> None:
        return

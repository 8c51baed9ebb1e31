"""Serving until told to stop: what a worker's and a scheduler's process have in common."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

__all__ = ["Service", "serve"]


class Service(Protocol):
    """What a process is until it is told to stop."""

    async def start(self) -> None: ...

    async def drain(self) -> None:
        """Let go of what runs, within the service's own grace."""
        ...

    async def stop(self) -> None:
        """Close everything, also what never started."""
        ...


async def serve(service: Service, *, ready: Callable[[], None]) -> None:
    """Start, call `ready`, and serve until SIGTERM or SIGINT; then drain and close everything.

    A signal counts from the moment this is called: one that comes while the service starts is obeyed as soon as it
    has started, so that whatever it took up by then is handed back. A second signal ends the process at once: what
    leases are for. Signals are handled in the main thread only. Raises what `start` raises.
    """
    asked = asyncio.Event()
    with _signals(asked):
        try:
            await service.start()
            if not asked.is_set():
                ready()
            await asked.wait()
            await service.drain()
        finally:
            await service.stop()


@contextlib.contextmanager
def _signals(asked: asyncio.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    told = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told:
            os._exit(128 + number)
        told = True
        loop.call_soon_threadsafe(asked.set)

    # Not the loop's own handlers: those wait for its next turn, which a blocking tool may keep from coming.
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Faults of the database's and the broker's own processes."""

import asyncio
import os
import signal
import time

from wakeful.bootstrap.stack import Stack
from wakeful.embedded.errors import EmbeddedError

__all__ = ["kill_database", "restart_database", "stop_broker"]

START_SECONDS = 30.0
"""The children of a killed postmaster hold its memory for a moment; no server starts meanwhile."""


async def restart_database(stack: Stack) -> None:
    """An orderly restart: every connection is ended."""
    await asyncio.to_thread(stack.postgres.restart)


async def kill_database(stack: Stack) -> None:
    """SIGKILL of the postmaster, and a start over what it left."""
    os.kill(stack.postgres.pid, signal.SIGKILL)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            await asyncio.to_thread(stack.postgres.restart, immediate=True)
            return
        except EmbeddedError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


async def stop_broker(stack: Stack, seconds: float) -> None:
    """A broker that takes connections and answers nothing for so long."""
    os.kill(stack.valkey.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(stack.valkey.pid, signal.SIGCONT)

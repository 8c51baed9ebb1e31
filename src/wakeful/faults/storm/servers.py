"""Faults of the database's and the broker's own processes."""

import asyncio
import os
import signal
import time
from pathlib import Path

from wakeful.bootstrap.stack import Stack

__all__ = ["kill_database", "restart_database", "stop_broker"]

CHILDREN_SECONDS = 30.0
"""The children of a killed postmaster notice it by and by, and no server starts over their memory."""


async def restart_database(stack: Stack) -> None:
    """An orderly restart: every connection is ended."""
    await asyncio.to_thread(stack.postgres.restart)


async def kill_database(stack: Stack) -> None:
    """SIGKILL of the postmaster, and a start over what it left."""
    postmaster = stack.postgres.pid
    children = _children(postmaster)
    os.kill(postmaster, signal.SIGKILL)
    deadline = time.monotonic() + CHILDREN_SECONDS
    while left := [pid for pid in children if _running(pid)]:
        if time.monotonic() > deadline:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)  # they are not ours: nobody tells us of their end
    await asyncio.to_thread(stack.postgres.restart, immediate=True)


async def stop_broker(stack: Stack, seconds: float) -> None:
    """A broker that takes connections and answers nothing for so long."""
    os.kill(stack.valkey.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(stack.valkey.pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    """Where there is no /proc, nobody is waited for."""
    return [int(file.parent.name) for file in Path("/proc").glob("[0-9]*/stat") if _parent(file) == parent]


def _parent(file: Path) -> int | None:
    try:
        # The name in brackets may hold anything; behind it come the state and the parent.
        return int(file.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except OSError:
        return None  # it has ended meanwhile


def _running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

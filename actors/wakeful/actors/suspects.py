"""Executing suspects: each alone in a process of its own, so that a poison run takes no neighbour with it."""

import asyncio
import contextlib
import itertools
import json
import signal
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from wakeful.actors.execution import SuspectDied
from wakeful.actors.suspect_orders import Order, SuspectSpec, decode, encode
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

__all__ = ["SuspectSpec", "Suspects"]

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_LAST_WORDS_SECONDS = 1.0


class Suspects:
    """Implements `wakeful.actors.execution.ExecutesSuspects` for one event loop.

    The fork server starts with the first suspect, which takes about a second; every further one starts in
    milliseconds. One that ended is started again with the next suspect.
    """

    def __init__(self, spec: SuspectSpec, *, lease: timedelta, heartbeat: timedelta | None = None) -> None:
        """Nothing is started. `heartbeat` is a third of the lease unless given."""
        self._spec, self._lease, self._heartbeat = spec, lease, heartbeat or lease / 3
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._forks: _Forks | None = None

    async def execute(self, holding: Holding, *, renewing: Callable[[], None]) -> Ending:
        """See the port. A drain asked of `holding` is passed on; cancelling kills the process, and so does not being
        ready to renew within a minute."""
        forks = await self._running_forks()
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        try:
            ended = forks.start(number, theirs)
        finally:
            theirs.close()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            writer.write(encode(self._order(holding).to_message()))
            asking = asyncio.create_task(_pass_on(holding, writer))
            try:
                return await _ending(reader, ended, renewing)
            finally:
                asking.cancel()
                writer.close()
        finally:
            if not ended.done():
                forks.kill(number)

    def _order(self, holding: Holding) -> Order:
        return Order(
            holding.claim,
            self._spec.target,
            self._spec.settings,
            self._lease,
            self._heartbeat,
            holding.trusted_until,
        )

    async def stop(self) -> None:
        """Kill every suspect's process and the fork server; on return none is left. Twice changes nothing."""
        async with self._starting:
            if self._forks is not None:
                await self._forks.stop()
                self._forks = None

    async def _running_forks(self) -> "_Forks":
        async with self._starting:
            if self._forks is None or not self._forks.alive:
                if self._forks is not None:
                    await self._forks.stop()
                self._forks = await _Forks.launch(self._spec.preload)
            return self._forks


class _Forks:
    """The fork server as its worker sees it."""

    def __init__(
        self, process: asyncio.subprocess.Process, control: socket.socket, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._control, self._writer = process, control, writer
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def launch(cls, preload: tuple[str, ...]) -> "_Forks":
        ours, theirs = socket.socketpair()
        # A session of its own: a terminal's Ctrl-C is for the worker, which drains.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "wakeful.actors.suspect_forks",
            str(theirs.fileno()),
            json.dumps(sys.path),
            *preload,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        forks = cls(process, ours, writer)
        forks._reading = asyncio.create_task(forks._read(reader), name="suspects")
        return forks

    @property
    def alive(self) -> bool:
        return self._reading is not None and not self._reading.done()

    def start(self, number: int, child: socket.socket) -> "asyncio.Future[int]":
        """Fork a process that talks over `child`; its exit status, once it ended."""
        ended = self._ended[number] = asyncio.get_running_loop().create_future()
        # Past the transport, which cannot pass descriptors; it never has anything buffered, see `kill`.
        socket.send_fds(self._control, [encode({"start": number})], [child.fileno()])
        return ended

    def kill(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._control.send(encode({"kill": number}))

    async def stop(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = decode(line)
                ended = self._ended.pop(message["ended"])
                if not ended.done():
                    ended.set_result(message["status"])
        except OSError:
            pass
        finally:
            # The server is gone, and its children with it.
            for ended in self._ended.values():
                if not ended.done():
                    ended.set_result(-signal.SIGKILL)
            self._ended.clear()


async def _pass_on(holding: Holding, writer: asyncio.StreamWriter) -> None:
    while not holding.draining:
        holding.changed.clear()
        if not holding.draining:
            await holding.changed.wait()
    writer.write(encode({"drain": True}))


async def _ending(reader: asyncio.StreamReader, ended: "asyncio.Future[int]", renewing: Callable[[], None]) -> Ending:
    """What the process said before it ended. Raises SuspectDied when it said nothing."""
    saying = asyncio.create_task(_last_word(reader, renewing))
    saying.add_done_callback(lambda task: task.cancelled() or task.exception())  # a reset is told by the status
    try:
        # Not the end of the stream: a process that the run has left behind may hold it open.
        either: set[asyncio.Future[Any]] = {saying, ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done() and saying.done() and isinstance(saying.exception(), TimeoutError):
            raise SuspectDied(f"was not ready within {_START_SECONDS:g} s")
        status = await ended
        if status == 0:
            return Ending[await asyncio.wait_for(saying, _LAST_WORDS_SECONDS)]
    except (OSError, ValueError, KeyError):
        raise SuspectDied("ended without an ending") from None
    finally:
        saying.cancel()
    raise SuspectDied(_cause(status))


async def _last_word(reader: asyncio.StreamReader, renewing: Callable[[], None]) -> str:
    """The ending's name; on the way to it the process says that it renews its lease."""
    first = await asyncio.wait_for(reader.readline(), _START_SECONDS)
    if "renewing" not in decode(first):
        return str(decode(first)["ending"])
    renewing()
    return str(decode(await reader.readline())["ending"])


def _cause(status: int) -> str:
    return f"exited with signal {-status}" if status < 0 else f"exited with status {status}"

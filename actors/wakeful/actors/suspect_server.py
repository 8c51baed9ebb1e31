"""The fork server of suspects (`wakeful.actors.suspect_forks`) as its worker sees it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import Protocol

from wakeful.actors.suspect_forks import ForkedServer
from wakeful.actors.suspect_orders import decode, encode

__all__ = ["Forks"]

_STOP_SECONDS = 5.0


class Process(Protocol):
    """A child of ours, to be waited for once."""

    async def wait(self) -> int: ...

    def kill(self) -> None: ...


class _Forked:
    """A child that was forked without the loop's knowing."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waiting: asyncio.Future[tuple[int, int]] | None = None

    async def wait(self) -> int:
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(asyncio.to_thread(os.waitpid, self._pid, 0))
        _, status = await asyncio.shield(self._waiting)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


class Forks:
    """The fork server as its worker sees it."""

    def __init__(self, process: Process, control: socket.socket, writer: asyncio.StreamWriter) -> None:
        self._process, self._control, self._writer = process, control, writer
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def launch(cls, preload: tuple[str, ...]) -> "Forks":
        ours, theirs = socket.socketpair()
        # A group of its own: a terminal's Ctrl-C is for the worker, which drains.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "wakeful.actors.suspect_forks",
            str(theirs.fileno()),
            json.dumps(sys.path),
            *preload,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            process_group=0,
        )
        theirs.close()
        return await cls._over(process, ours)

    @classmethod
    async def adopt(cls, forked: ForkedServer) -> "Forks":
        """The one that this process was forked beside."""
        return await cls._over(_Forked(forked.pid), forked.control)

    @classmethod
    async def _over(cls, process: Process, control: socket.socket) -> "Forks":
        reader, writer = await asyncio.open_unix_connection(sock=control)
        forks = cls(process, control, writer)
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

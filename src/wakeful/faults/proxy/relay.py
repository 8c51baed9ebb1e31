"""One connection through the proxy."""

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass, field

from wakeful.faults.proxy.wire import Frames, Statements, startup_length

__all__ = ["Faults", "Landed", "Relay"]

_READ_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Landed:
    """What the proxy did, each counted when it happened."""

    connections: int = 0
    cut: int = 0
    """Connections reset while open."""
    swallowed: int = 0
    """Bytes that went into a black hole."""
    holes: int = 0
    """Connections that became one."""
    stalled: int = 0
    """Messages that waited for a stall to end."""
    delayed: int = 0
    """Messages that were late."""
    answers_lost: int = 0
    """Statements that the server finished and whose answer nobody got."""
    lost: list[str] = field(default_factory=list)
    """Their texts' beginnings."""


@dataclass(slots=True)
class Faults:
    """What is in force, shared by all connections."""

    landed: Landed = field(default_factory=Landed)
    delay_seconds: float = 0.0
    hole: bool = False
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    lose: bytes | None = None
    """Lose the answer of the next statement that contains this, so often:"""
    lose_times: int = 0

    def take_loss(self, statement: bytes) -> bool:
        if self.lose is None or self.lose_times < 1 or self.lose not in statement:
            return False
        self.lose_times -= 1
        return True


class Relay:
    """Carries messages both ways until one side ends."""

    def __init__(
        self,
        faults: Faults,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._faults = faults
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._statements = Statements()
        self._asked: deque[bytes | None] = deque()
        """Of each request for answers that is out, the statement whose answer is to be lost."""
        self.hole = False

    async def run(self) -> None:
        await self._startup()
        ways = [asyncio.create_task(self._client_to_server()), asyncio.create_task(self._server_to_client())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def reset(self) -> None:
        """End both sides at once, without a farewell."""
        for writer in (self._to_client, self._to_server):
            connection = writer.get_extra_info("socket")
            if connection is not None and connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    def fall_into_hole(self) -> None:
        """From now on nothing comes through, and nothing ends."""
        if not self.hole:
            self.hole = True
            self._faults.landed.holes += 1

    async def _startup(self) -> None:
        data = b""
        while True:
            part = await self._from_client.read(_READ_BYTES)
            if not part:
                raise ConnectionResetError
            data += part
            while (found := startup_length(data)) is not None:
                length, more = found
                await self._pass(self._to_server, data[:length])
                data = data[length:]
                if not more:
                    self._left = data
                    return
                await self._pass(self._to_client, await self._from_server.readexactly(1))

    async def _client_to_server(self) -> None:
        frames, data = Frames(), self._left
        while True:
            for kind, body in frames.feed(data):
                statement = self._statements.see(kind, body)
                if statement is not None:
                    self._asked.append(statement if self._faults.take_loss(statement) else None)
                await self._pass(self._to_server, Frames.raw(kind, body))
            data = await self._from_client.read(_READ_BYTES)
            if not data:
                await self._ended()
                return

    async def _server_to_client(self) -> None:
        frames, ready = Frames(), False
        while data := await self._from_server.read(_READ_BYTES):
            for kind, body in frames.feed(data):
                if kind == b"Z":
                    # The first one ends the startup; every later one answers a request.
                    losing = self._asked.popleft() if ready and self._asked else None
                    ready = True
                    if losing is not None:
                        self._lose(losing)
                        return
                elif ready and self._asked and self._asked[0] is not None:
                    continue
                await self._pass(self._to_client, Frames.raw(kind, body))
        await self._ended()

    def _lose(self, statement: bytes) -> None:
        """The server is done with it, and said so; the client is never told."""
        self._faults.landed.answers_lost += 1
        self._faults.landed.lost.append(statement[:80].decode("utf-8", "replace"))
        self.reset()

    async def _pass(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        faults = self._faults
        if not faults.flowing.is_set():
            faults.landed.stalled += 1
            await faults.flowing.wait()
        if faults.delay_seconds:
            faults.landed.delayed += 1
            await asyncio.sleep(faults.delay_seconds)
        if faults.hole:
            self.fall_into_hole()
        if self.hole:
            faults.landed.swallowed += len(data)
            return
        writer.write(data)
        await writer.drain()

    async def _ended(self) -> None:
        """One side closed; in a hole the other never learns of it."""
        if self.hole:
            await asyncio.Event().wait()

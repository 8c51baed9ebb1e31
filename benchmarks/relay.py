"""A relay between a client and PostgreSQL that counts what the protocol shows: round trips and commits."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Traffic", "relay"]

_READY, _COMPLETE, _ERROR = b"Z", b"C", b"E"


@dataclass(slots=True)
class Traffic:
    """Counted over all connections."""

    round_trips: int = 0
    """How often a client spoke after it had been answered."""
    commits: int = 0
    """Transactions that ended well after at least one statement."""


@contextlib.asynccontextmanager
async def relay(folder: Path, server: Path) -> AsyncIterator[Traffic]:
    """Listen in `folder` under the server's socket name, for as long as the block runs."""
    traffic = Traffic()
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(serve(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(str(server))
        talk = _Talk(traffic)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(
                _pass(reader, to_server, talk.from_client), _pass(from_server, writer, talk.from_server)
            )

    listening = await asyncio.start_unix_server(accept, str(folder / server.name))
    try:
        yield traffic
    finally:
        listening.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


class _Talk:
    """One connection's conversation. Frames of the server: a type byte, four bytes of length, the rest."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._answered = True
        self._rest = b""
        self._completed = self._failed = False

    def from_client(self, data: bytes) -> None:
        if self._answered:
            self._traffic.round_trips += 1
            self._answered = False

    def from_server(self, data: bytes) -> None:
        self._answered = True
        self._rest += data
        while len(self._rest) >= 5 and len(self._rest) > (length := int.from_bytes(self._rest[1:5], "big")):
            self._frame(self._rest[:1], self._rest[5 : length + 1])
            self._rest = self._rest[length + 1 :]

    def _frame(self, kind: bytes, body: bytes) -> None:
        if kind == _COMPLETE:
            self._completed = True
        elif kind == _ERROR:
            self._failed = True
        elif kind == _READY and body == b"I":
            self._traffic.commits += self._completed and not self._failed
            self._completed = self._failed = False


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tell: Callable[[bytes], None]) -> None:
    while data := await reader.read(65536):
        tell(data)
        writer.write(data)
        await writer.drain()
    writer.close()

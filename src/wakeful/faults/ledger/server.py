"""What the ledger's process does."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

from wakeful.faults.ledger.book import MAX_REQUEST_BYTES, Book, Effect, line_of, read_book

__all__ = ["LedgerServer", "serve"]


class LedgerServer:
    """Takes effects one after the other; what was taken together is made durable together, before any answer."""

    def __init__(self, path: Path) -> None:
        self._book = read_book(path)
        # Opened for good: one process owns the file. What a power failure tore off is cut away first.
        self._file: IO[bytes] = path.open("ab")
        self._cut_torn_line(path)
        self._dirty = asyncio.Event()
        self._durable: asyncio.Future[None] | None = None

    @property
    def book(self) -> Book:
        return self._book

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: requests and answers line by line."""
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._handle(json.loads(line))).encode("ascii") + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError, KeyError):
            pass  # The caller was killed or spoke nonsense: nothing it was not told of counts.
        finally:
            writer.close()

    async def sync_forever(self) -> None:
        """Make durable whatever has been written, one fsync for all that wait."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            waiting, self._durable = self._durable, None
            self._file.flush()
            await asyncio.to_thread(os.fsync, self._file.fileno())
            if waiting is not None:
                waiting.set_result(None)

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        key, once = str(request["key"]), bool(request["once"])
        known = self._book.known(key) if once else None
        if known is None:
            effect = Effect(len(self._book.effects) + 1, key, str(request["what"]), request.get("payload"), time.time())
            self._book.take(effect)
            self._file.write(line_of(effect).encode("ascii") + b"\n")
        else:
            effect = known
            self._book.replayed += 1
            self._file.write(json.dumps({"replayed": key}, separators=(",", ":")).encode("ascii") + b"\n")
        # A repeated key waits too: its first taking may not be durable yet.
        await self._synced()
        return {"number": effect.number, "payload": effect.payload, "replayed": known is not None}

    async def _synced(self) -> None:
        if self._durable is None:
            self._durable = asyncio.get_running_loop().create_future()
        waiting = self._durable
        self._dirty.set()
        await asyncio.shield(waiting)

    def _cut_torn_line(self, path: Path) -> None:
        size = path.stat().st_size
        with path.open("rb") as file:
            whole = file.read().rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(self._file.fileno(), whole)


async def serve(socket: Path, file: Path) -> None:
    """Serve until standard input ends, which it does when the owner ends, however that happens."""
    server = LedgerServer(file)
    listener = await asyncio.start_unix_server(server.answer, path=socket, limit=MAX_REQUEST_BYTES)
    syncing = asyncio.create_task(server.sync_forever())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await _end_of_input()
    listener.close()
    syncing.cancel()


async def _end_of_input() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()

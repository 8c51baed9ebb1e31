"""The proxy on a loop and a thread of its own, so that nothing it stands before can hold it up."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wakeful.faults.proxy.relay import Faults, Landed, Relay

__all__ = ["FaultProxy"]

T = TypeVar("T")


class FaultProxy:
    """Stands before the server of `dsn`; `proxied()` is the address of the same database through it.

    Faults may be asked for from any thread and are in force on return. Starting and stopping twice change nothing.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None
        self._relays: set[Relay] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults: Faults | None = None
        self._port = 0

    def start(self) -> Self:
        """Return when it takes connections."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
            self._thread.start()
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def stop(self) -> None:
        """Reset what is open and end."""
        if self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._thread = None

    def proxied(self, dsn: str | None = None) -> str:
        """`dsn` (the server's when None) through the proxy, without encryption: it has to read along."""
        given = conninfo_to_dict(dsn or self._dsn)
        return make_conninfo("", **{**given, "host": "127.0.0.1", "port": str(self._port), "sslmode": "disable"})

    @property
    def landed(self) -> Landed:
        return self._in_force.landed

    def cut(self) -> int:
        """Reset every connection; how many there were."""
        return self._on_loop(self._cut)

    def stall(self) -> None:
        """Hold everything back, until `flow`."""
        self._on_loop(self._in_force.flowing.clear)

    def flow(self) -> None:
        """End a stall: what was held back arrives. End a delay."""
        self._on_loop(self._in_force.flowing.set)
        self.delay(0.0)

    def delay(self, seconds: float) -> None:
        """Make every message late."""
        self._on_loop(lambda: setattr(self._in_force, "delay_seconds", seconds))

    def black_hole(self) -> int:
        """Let nothing through on any connection, old or new, and close none; how many were open."""
        return self._on_loop(self._dig)

    def fill_hole(self) -> None:
        """New connections work again. Those that fell into the hole stay there, as through a router that forgot."""
        self._on_loop(lambda: setattr(self._in_force, "hole", False))

    def lose_answers(self, of: str, times: int = 1) -> None:
        """Swallow the answers of the next `times` statements that contain `of`, once the server is done with them,
        and reset their connections."""
        self._on_loop(lambda: self._set_loss(of, times))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _in_force(self) -> Faults:
        if self._faults is None:
            raise RuntimeError("the proxy is not running: call start() first")
        return self._faults

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def there() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result()

    async def _open(self) -> None:
        self._faults = Faults()
        self._faults.flowing.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._cut(count=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            server = await self._connect()
            relay = Relay(self._in_force, (reader, writer), server)
            self._relays.add(relay)
            self._in_force.landed.connections += 1
            try:
                await relay.run()
            finally:
                self._relays.discard(relay)
                server[1].close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the server is down, or one side went: the other learns of it by the close
        except asyncio.CancelledError:
            pass  # the proxy stops
        finally:
            writer.close()
            if task is not None:
                self._tasks.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        given = conninfo_to_dict(self._dsn)
        host, port = str(given.get("host") or "127.0.0.1"), str(given.get("port") or "5432")
        if host.startswith("/"):
            return await asyncio.open_unix_connection(Path(host) / f".s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    def _cut(self, *, count: bool = True) -> int:
        relays = list(self._relays)
        for relay in relays:
            relay.reset()
        if count:
            self._in_force.landed.cut += len(relays)
        return len(relays)

    def _dig(self) -> int:
        self._in_force.hole = True
        for relay in self._relays:
            relay.fall_into_hole()
        return len(self._relays)

    def _set_loss(self, of: str, times: int) -> None:
        self._in_force.lose, self._in_force.lose_times = of.encode(), times

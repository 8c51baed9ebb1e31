"""A small pool of driver connections in autocommit for one role, made for statements that are a whole transaction.

Taking a connection costs no round trip and no ping: role, limits and guarantees are startup options, checked once
per connection. The last one returned is taken first. One that is not idle when it comes back (its statement was
cancelled, its transaction is open, its socket is dead) is closed, never repaired.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Token
from dataclasses import dataclass
from types import TracebackType

from psycopg.pq import ConnStatus, TransactionStatus

from wakeful.domain.errors import ConfigurationError, Unavailable
from wakeful.domain.transactions import entered, left
from wakeful.persistence.answering import AnsweringConnection

__all__ = ["Connection", "HotPool"]

TAKE_TIMEOUT_SECONDS = 5.0
"""How long a caller waits for a connection before it is told that the pool is too small."""

Connection = AnsweringConnection


@dataclass(slots=True)
class _Taken:
    """`async with pool.connection()`: a class, because the hot path should not pay for a generator."""

    pool: "HotPool"
    connection: Connection | None = None
    inside: "Token[bool] | None" = None

    async def __aenter__(self) -> Connection:
        connection = self.pool.idle()
        if connection is None:
            connection = await self.pool.take()
        self.connection = connection
        self.inside = entered()
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.connection is not None:
            self.pool.give(self.connection)
            self.connection = None
        if self.inside is not None:
            left(self.inside)


class HotPool:
    """At most `size` connections, made by `connect` when they are needed.

    Belongs to the loop that opened it. Opening and closing twice change nothing; `close` returns when every idle
    connection is closed, and those still in use are closed when they come back.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, size: int) -> None:
        if size < 1:
            raise ConfigurationError("a connection pool needs a size of at least 1")
        self._connect, self._size = connect, size
        self._idle: list[Connection] = []
        # Given a connection, or None for the place of one that was closed. Handed over, never raced for: a task
        # that gives back and takes again at once would otherwise pass everybody who waits.
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._count = 0
        # Being made for callers that were cancelled.
        self._unclaimed: set[asyncio.Task[Connection]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Make the first connection, so that what is wrong is said now. Raises ConfigurationError, Unavailable."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            try:
                async with self.connection():
                    pass
            except BaseException:
                self._loop = None
                raise

    async def close(self) -> None:
        self._loop = None
        while self._idle:
            self._discard(self._idle.pop())
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(Unavailable("the store was closed"))
        if self._unclaimed:
            await asyncio.wait(self._unclaimed)

    def connection(self) -> _Taken:
        """One connection for the length of an `async with`. Raises Unavailable when none is free for long."""
        return _Taken(self)

    @property
    def in_use(self) -> int:
        """Connections taken and not given back."""
        return self._count - len(self._idle) - len(self._unclaimed)

    def idle(self) -> Connection | None:
        """The connection given back last, if it is still open. Raises ConfigurationError on another loop."""
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "this store is closed, or was opened on another event loop: open one store per loop, and keep it open"
            )
        while self._idle:
            connection = self._idle.pop()
            if connection.pgconn.status == ConnStatus.OK:
                return connection
            self._discard(connection)
        return None

    async def take(self) -> Connection:
        """A connection when none is idle: a new one, or the next that is given back."""
        if self._count < self._size:
            self._count += 1
        elif (connection := await self._turn()) is not None:
            return connection
        return await self._new()

    async def _new(self) -> Connection:
        """A connection of its own task: a caller that is cancelled leaves no half-made one behind, and the pool gets
        what it began."""
        making = asyncio.ensure_future(self._connect())
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._unclaimed.add(making)
            making.add_done_callback(self._arrived)
            raise
        except BaseException:
            self._free_place()
            raise

    def _arrived(self, making: "asyncio.Task[Connection]") -> None:
        self._unclaimed.discard(making)
        if making.cancelled() or making.exception() is not None:
            self._free_place()
        else:
            self.give(making.result())

    def give(self, connection: Connection) -> None:
        """Take it back. Never waits, so that no cancellation can come between."""
        if self._loop is None or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            self._discard(connection)
        elif not self._hand_over(connection):
            self._idle.append(connection)

    async def _turn(self) -> Connection | None:
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(TAKE_TIMEOUT_SECONDS):
                return await turn
        except BaseException as error:
            self._give_up(turn)
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"all {self._size} connections were in use for {TAKE_TIMEOUT_SECONDS:g} s: raise the pool size"
                ) from error
            raise

    def _give_up(self, turn: "asyncio.Future[Connection | None]") -> None:
        """Pass on what was handed over to a caller that is being cancelled."""
        if turn.cancel() or turn.cancelled() or turn.exception() is not None:
            return
        connection = turn.result()
        if connection is None:
            self._free_place()
        else:
            self.give(connection)

    def _hand_over(self, connection: Connection | None) -> bool:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def _free_place(self) -> None:
        if not self._hand_over(None):
            self._count -= 1

    def _discard(self, connection: Connection) -> None:
        # What AsyncConnection.close() does, without being a coroutine that a cancellation could keep from running.
        connection.pgconn.finish()
        self._free_place()

"""A hot path's statement, executed beneath the driver's cursors.

A cursor adapts every parameter by its type, looks its statement up in a cache and keeps results for fetching; for a
statement that runs a hundred thousand times with known types that is most of what this process does. Here the
parameters are bytes already, the statement has a name of its own, and one future waits for the answer. Everything
else is the driver's: connection, protocol, errors.
"""

import asyncio
from collections.abc import Sequence
from weakref import WeakSet

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from wakeful.persistence.connections import Connection

__all__ = ["HotStatement"]

_BINARY = 1
_CANCEL_SECONDS = 5.0


class HotStatement:
    """One statement that gives one row. Prepared once per connection, where the connection prepares at all."""

    def __init__(self, name: str, statement: bytes) -> None:
        """`name` is the statement's own on every connection; its parameters are `$1`, `$2`, … ."""
        self.name = name
        self._name, self._statement = name.encode(), statement
        self._prepared: WeakSet[Connection] = WeakSet()

    async def row(self, connection: Connection, parameters: Sequence[bytes | None]) -> tuple[bytes | None, ...]:
        """The row's columns in binary format; parameters are in text format.

        Raises psycopg errors. A cancelled caller's statement is cancelled in the server and waited for; where that
        fails the connection stays active, and its pool closes it.
        """
        pgconn = connection.pgconn
        if connection.prepare_threshold is None:
            pgconn.send_query_params(self._statement, parameters, result_format=_BINARY)
        else:
            if connection not in self._prepared:
                await self._prepare(connection)
            pgconn.send_query_prepared(self._name, parameters, result_format=_BINARY)
        result = await _answered(connection)
        return tuple(result.get_value(0, column) for column in range(result.nfields))

    async def _prepare(self, connection: Connection) -> None:
        connection.pgconn.send_prepare(self._name, self._statement)
        try:
            await _answered(connection)
        except asyncio.CancelledError:
            # The name may be taken or not, and nobody read the answer: the pool closes what is closed already.
            connection.pgconn.finish()
            raise
        self._prepared.add(connection)


async def _answered(connection: Connection) -> pq.abc.PGresult:
    try:
        result = await _last_result(connection.pgconn, connection.answer_within)
    except asyncio.CancelledError:
        await _cancel(connection)
        raise
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return result
    if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
        # Made up by the library, which lost the connection.
        raise psycopg.OperationalError(result.get_error_message())
    raise error_from_result(result)


async def _cancel(connection: Connection) -> None:
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            await connection.cancel_safe(timeout=_CANCEL_SECONDS)
            await _last_result(connection.pgconn, _CANCEL_SECONDS)
    except (psycopg.Error, TimeoutError):
        return


async def _last_result(pgconn: pq.abc.PGconn, within_seconds: float) -> pq.abc.PGresult:
    """Send what is still to be sent, and return when the server is done with it. A server that is silent for so long
    counts as a lost connection."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[pq.abc.PGresult] = loop.create_future()
    exchange = _Exchange(pgconn, done)
    socket = pgconn.socket
    writing = pgconn.flush() != 0
    loop.add_reader(socket, exchange.readable)
    if writing:
        # More than the socket takes at once. The server may want to be read before it reads on.
        loop.add_writer(socket, exchange.writable)
    silence = loop.call_later(within_seconds, exchange.silent, within_seconds)
    try:
        return await done
    finally:
        silence.cancel()
        loop.remove_reader(socket)
        if writing:
            loop.remove_writer(socket)


class _Exchange:
    """The loop's callbacks of one exchange with the server."""

    __slots__ = ("_done", "_last", "_pgconn")

    def __init__(self, pgconn: pq.abc.PGconn, done: "asyncio.Future[pq.abc.PGresult]") -> None:
        self._pgconn, self._done = pgconn, done
        self._last: pq.abc.PGresult | None = None

    def readable(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            # Not before the last result: what follows it says that the server is ready for the next statement.
            while not self._done.done() and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is not None:
                    self._last = result
                elif self._last is not None:
                    self._done.set_result(self._last)
                else:
                    raise psycopg.OperationalError("the connection ended before the answer came")
        except Exception as error:
            if not self._done.done():
                self._done.set_exception(error)

    def silent(self, seconds: float) -> None:
        # Its pool closes the connection: not here, while the loop still watches a descriptor of that number.
        if not self._done.done():
            self._done.set_exception(psycopg.OperationalError(f"the server did not answer within {seconds:g} s"))

    def writable(self) -> None:
        try:
            if self._pgconn.flush() == 0:
                asyncio.get_running_loop().remove_writer(self._pgconn.socket)
        except Exception as error:
            if not self._done.done():
                self._done.set_exception(error)

"""Driver connections that do not wait for an answer for ever.

A statement has its time limit in the server. But a server that is frozen, a pooler that hangs or a router that has
forgotten the connection says nothing at all, and TCP sees nothing wrong for hours. So each wait for an answer is
bounded here as well, somewhat later than in the server; the connection is of no use then and is ended, which is an
error like any other lost connection: nothing is known of the statement. Waiting for notifications is not bounded.
"""

import time
from collections.abc import Generator
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus, abc

__all__ = ["AnsweringConnection", "SyncAnsweringConnection", "answer_limit"]

_LOOK_SECONDS = 0.1
"""How often a wait looks at the clock."""

T = TypeVar("T")
Exchange = Generator[Any, Any, T]


def answer_limit(statement_timeout: timedelta) -> float:
    """The seconds after which no answer will come: the server ends a statement at its own limit and says so."""
    return statement_timeout.total_seconds() * 1.2


class AnsweringConnection(psycopg.AsyncConnection[Any]):
    """`answer_within` is in seconds, and may be changed."""

    answer_within: float = 30.0

    async def wait(self, gen: Any, interval: float = _LOOK_SECONDS, *rest: Any, **options: Any) -> Any:
        return await super().wait(_bounded(self.pgconn, gen, self.answer_within), interval, *rest, **options)


class SyncAnsweringConnection(psycopg.Connection[Any]):
    """The same for a thread of its own."""

    answer_within: float = 30.0

    def wait(self, gen: Any, interval: float = _LOOK_SECONDS, *rest: Any, **options: Any) -> Any:
        return super().wait(_bounded(self.pgconn, gen, self.answer_within), interval, *rest, **options)


def _bounded(connection: "abc.PGconn", exchange: "Exchange[T]", seconds: float) -> "Exchange[T]":
    """The exchange with the server, ended when nothing has come for so long while a statement is under way."""
    since = time.monotonic()
    try:
        wanted = next(exchange)
        while True:
            ready = yield wanted
            if ready:
                since = time.monotonic()
            elif time.monotonic() - since > seconds and connection.transaction_status == TransactionStatus.ACTIVE:
                exchange.close()
                connection.finish()
                raise psycopg.OperationalError(f"the server did not answer within {seconds:g} s")
            wanted = exchange.send(ready)
    except StopIteration as stop:
        value: T = stop.value
        return value

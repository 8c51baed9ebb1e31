"""An SQLAlchemy engine over proved connections (`wakeful.persistence.connecting`), for units of work.

The role travels as a startup option, so no statement is spent on it when a connection is taken from the pool.
There are no engine event hooks that run SQL: a cancellation inside one would leave its transaction open.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from wakeful.persistence.connecting import ConnectionSettings, connector

__all__ = ["POOL_SIZE", "make_engine"]

POOL_SIZE = 5

Connection = psycopg.AsyncConnection[Any]


def make_engine(settings: ConnectionSettings, *, pool_size: int = POOL_SIZE) -> AsyncEngine:
    """An engine that connects when first used; dispose of it on the loop that used it.

    A connection that is not what was asked for raises ConfigurationError where it would have been used.
    """
    return create_async_engine(
        "postgresql+psycopg://",
        async_creator=_creator(settings),
        pool_size=pool_size,
        max_overflow=0,
        pool_use_lifo=True,
    )


def _creator(settings: ConnectionSettings) -> Callable[[], Awaitable[Any]]:
    connect_proved = connector(settings)

    async def make() -> Connection:
        connection = await connect_proved()
        try:
            # SQLAlchemy begins and ends transactions through the driver.
            await connection.set_autocommit(False)
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection

    async def connect() -> Connection:
        # Cancelled half-way, the driver forgets the socket, and the server keeps the connection until the garbage
        # collector finds it. So connecting goes on, and what nobody wants any more is closed.
        task = asyncio.ensure_future(make())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_close)
            # Nothing of it outlives the cancelled task, unless that is cancelled a second time.
            await asyncio.wait([task])
            _close(task)
            raise

    return connect


def _close(task: "asyncio.Task[Connection]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().pgconn.finish()

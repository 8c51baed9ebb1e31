"""Cancelled while a connection is being made or its statement prepared, a caller leaves nothing half-made behind."""

import asyncio
import select
from collections.abc import AsyncIterator

import pytest
from support.database import Database

from wakeful.domain.errors import Unavailable
from wakeful.persistence.connecting import ConnectionSettings, connector
from wakeful.persistence.connections import Connection, HotPool
from wakeful.persistence.roles import Role
from wakeful.persistence.statements import HotStatement

pytestmark = [pytest.mark.anyio, pytest.mark.spec("LOG-2")]

ONE_MORE = HotStatement("one_more", b"SELECT $1::int + 1")
ANSWER_SECONDS = 10.0


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[HotPool]:
    pool = HotPool(connector(ConnectionSettings(database.dsn, Role.APP, database.role_prefix)), size=1)
    await pool.open()
    yield pool
    await pool.close()


async def ask(pool: HotPool) -> int:
    async with pool.connection() as connection:
        (answer,) = await ONE_MORE.row(connection, [b"1"])
    assert answer is not None
    return int.from_bytes(answer, "big")


async def test_a_cancel_that_meets_the_answer_to_a_prepare_costs_the_connection_not_the_next_caller(
    pool: HotPool,
) -> None:
    async with pool.connection() as connection:
        socket = connection.pgconn.socket
    asking = asyncio.ensure_future(ask(pool))
    await asyncio.sleep(0)
    # The loop stands still while the server answers: both arrive at once.
    assert select.select([socket], [], [], ANSWER_SECONDS)[0]
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [await ask(pool), await ask(pool)] == [2, 2]
    assert connection.closed


async def test_what_a_cancelled_caller_began_to_connect_serves_the_next_one(database: Database) -> None:
    connect = connector(ConnectionSettings(database.dsn, Role.APP, database.role_prefix))
    made: list[Connection] = []
    begun = asyncio.Event()

    async def counted() -> Connection:
        begun.set()
        made.append(await connect())
        return made[-1]

    pool = HotPool(counted, size=2)
    await pool.open()
    begun.clear()
    async with pool.connection():
        second = asyncio.ensure_future(ask(pool))
        await begun.wait()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await ask(pool) == 2
        assert pool.in_use == 1
    assert len(made) == 2
    await pool.close()
    assert all(connection.closed for connection in made)


async def test_a_cancelled_caller_whose_connection_could_not_be_made_leaves_its_place_free() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def refused() -> Connection:
        begun.set()
        await go.wait()
        raise Unavailable("nobody answers")

    pool = HotPool(refused, size=1)
    opening = asyncio.ensure_future(pool.open())
    await begun.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    go.set()
    with pytest.raises(Unavailable, match="nobody answers"):
        await pool.open()
    assert pool.in_use == 0
    await pool.close()

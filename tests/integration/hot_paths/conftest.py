from collections.abc import AsyncIterator

import psycopg
import pytest
from support.contract import World
from support.database import Database
from support.hot_paths import Admin, store_on

from wakeful.persistence.store import PostgresStore


@pytest.fixture
async def store(database: Database) -> AsyncIterator[PostgresStore]:
    async with store_on(database) as opened:
        yield opened


@pytest.fixture
def world(store: PostgresStore) -> World:
    return World(store)


@pytest.fixture
async def admin(database: Database) -> AsyncIterator[Admin]:
    """A superuser's connection, which sees and arranges everything."""
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as connection:
        yield Admin(connection)

"""Each suite runs against every implementation of its port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.contract import Store, World
from support.database import Database

from wakeful.persistence.memory import MemoryStore
from wakeful.persistence.memory.artifacts import MemoryArtifactBytes


@asynccontextmanager
async def postgres_store(database: Database) -> AsyncIterator[Store]:
    from wakeful.persistence.store import Addresses, PostgresStore

    store = PostgresStore(
        Addresses(app=database.dsn), role_prefix=database.role_prefix, artifact_bytes=MemoryArtifactBytes()
    )
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    database: Database = request.getfixturevalue("database")
    async with postgres_store(database) as opened:
        yield opened


@pytest.fixture
def world(store: Store) -> World:
    return World(store)

from collections.abc import AsyncIterator

import pytest
from support.acting import World, world_on
from support.database import Database


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with world_on(database) as world:
        yield world

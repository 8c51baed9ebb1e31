from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.database import Database
from support.processes import Machine, machine

from wakeful.bootstrap.settings import given_settings
from wakeful.client import Wakeful, connect
from wakeful.domain.ids import new_id


@pytest.fixture
def machines(database: Database, tmp_path: Path) -> Iterator[Machine]:
    """Worker and scheduler processes on the test's own database; those still running are ended."""
    with machine(database, tmp_path) as made:
        yield made


@pytest.fixture
async def wakeful(database: Database) -> AsyncIterator[Wakeful]:
    """A client of an owner of its own."""
    settings = given_settings(database_url=database.dsn, role_prefix=database.role_prefix)
    async with connect(settings=settings, tenant=new_id(), principal=new_id()) as client:
        yield client

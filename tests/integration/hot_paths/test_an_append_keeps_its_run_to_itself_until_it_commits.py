"""Also an append that changes nothing of its run holds the run's row: whoever would take it away waits."""

import asyncio

import psycopg
import pytest
from support.contract import World, note
from support.database import Database
from support.hot_paths import Admin

pytestmark = [pytest.mark.anyio, pytest.mark.spec("QUE-5")]

_TAKE = b"UPDATE wakeful.runs SET lease_epoch = lease_epoch + 1 WHERE id = %s"


async def test_taking_a_run_waits_for_the_append_that_only_guards_it(
    world: World, admin: Admin, database: Database
) -> None:
    lease = await world.running()
    before = await admin.fetch("SELECT xmin::text FROM wakeful.runs WHERE id = %s", [lease.run.run_id])
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as sweep:
        async with admin.holding():
            appending = asyncio.create_task(world.append(lease, note("held")))
            (appender,) = await admin.waiting(1)
            taking = asyncio.create_task(sweep.execute(_TAKE, [lease.run.run_id]))
            assert (await admin.waiting(2))[0] == appender
            assert not taking.done()
        await appending
        await taking
    after = await admin.fetch("SELECT xmin::text, lease_epoch FROM wakeful.runs WHERE id = %s", [lease.run.run_id])
    assert after[0][1] == lease.epoch + 1
    assert after[0][0] != before[0][0]

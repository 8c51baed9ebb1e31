"""Whenever a task is cancelled, its connection comes back clean or not at all."""

import asyncio
import random

import pytest
from support.contract import World
from support.hot_paths import Admin
from support.notes import noted

from wakeful.persistence.store import PostgresStore

pytestmark = pytest.mark.anyio

TASKS = 500
_LEFT = """
SELECT state, query FROM pg_stat_activity
 WHERE datname = current_database() AND usename IS NOT NULL AND pid <> pg_backend_pid()
   AND state IN ('active', 'idle in transaction', 'idle in transaction (aborted)')
"""


@pytest.mark.spec("LOG-2")
async def test_hundreds_of_appends_cancelled_at_random_leave_no_connection_taken_and_no_transaction_open(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    sessions = [(await world.session()).ref for _ in range(4)]
    choose = random.Random(5)

    homes = [choose.choice(sessions) for _ in range(TASKS)]

    async def append(number: int) -> None:
        await store.log.append(noted(homes[number], str(number), number))

    tasks = [asyncio.create_task(append(number)) for number in range(TASKS)]
    pending, asked = set(tasks), set[asyncio.Task[None]]()
    while pending:
        # A few at whatever point they have reached; in between the others move on.
        for task in choose.sample(sorted(pending, key=id), min(3, len(pending))):
            task.cancel()
            asked.add(task)
        await asyncio.sleep(choose.choice((0, 0, 0.001)))
        pending = {task for task in pending if not task.done()}
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert {task for task in tasks if task.cancelled()} == asked
    assert len(asked) > 100
    assert store.in_use == 0
    assert await admin.fetch(_LEFT) == []
    # The pool still serves, and what was cancelled is done again: once each, whatever had become of it.
    for number in range(TASKS):
        await store.log.append(noted(homes[number], str(number), number))
    written = [text for session in sessions for _, text in await admin.events(session)]
    assert sorted(written, key=int) == [str(number) for number in range(TASKS)]


async def test_an_append_cancelled_while_it_waits_for_its_session_ends_on_the_server_too(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    session = (await world.session()).ref
    async with admin.locking(session):
        task = asyncio.create_task(store.log.append(noted(session, "cancelled")))
        await admin.waiting(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await admin.waiting(0)
    assert store.in_use == 0
    assert await admin.events(session) == []

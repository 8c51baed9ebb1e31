"""Hints that a log has grown: they come quickly, they are coalesced, and an append never depends on them."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from structlog.testing import capture_logs
from support.database import Database

from wakeful.domain.appends import Append
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import BudgetAmended
from wakeful.domain.scopes import Scope, SessionRef
from wakeful.domain.sessions import NewSession
from wakeful.persistence.store import Addresses, PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.spec("LOG-10")]

FOREVER = timedelta(seconds=60)


async def opened(database: Database) -> PostgresStore:
    store = PostgresStore(Addresses(app=database.dsn), role_prefix=database.role_prefix)
    await store.open()
    return store


async def session_in(store: PostgresStore) -> SessionRef:
    return (await store.sessions.create(NewSession(Scope(uuid4(), uuid4()), "agent"))).ref


def event() -> NewEvent:
    return NewEvent(BudgetAmended(max_steps=1), Actor("user"))


async def listening(database: Database) -> None:
    """Until PostgreSQL shows the listener."""
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as connection:
        while True:
            cursor = await connection.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'")
            if (await cursor.fetchone()) == (1,):
                return
            await asyncio.sleep(0.01)


async def test_a_reader_is_woken_by_another_process_append(database: Database) -> None:
    reader, writer = await opened(database), await opened(database)
    try:
        session = await session_in(writer)
        watch = reader.event_hints.watch(session)
        await listening(database)
        await watch.wait(timedelta(seconds=0))  # what the listener's own start has said
        waiting = asyncio.create_task(watch.wait(FOREVER))
        await writer.log.append(Append(session, (event(),)))
        async with asyncio.timeout(20):
            await waiting
    finally:
        await reader.close()
        await writer.close()


async def test_another_sessions_growth_wakes_nobody(database: Database) -> None:
    store = await opened(database)
    try:
        mine, other = await session_in(store), await session_in(store)
        watch, witness = store.event_hints.watch(mine), store.event_hints.watch(other)
        await listening(database)
        await watch.wait(timedelta(seconds=0))
        await witness.wait(timedelta(seconds=0))
        waiting = asyncio.create_task(watch.wait(FOREVER))
        hinted = asyncio.create_task(witness.wait(FOREVER))
        await store.log.append(Append(other, (event(),)))
        async with asyncio.timeout(20):
            await hinted
        assert not waiting.done()
        waiting.cancel()
    finally:
        await store.close()


async def test_an_append_succeeds_where_nothing_can_be_said(database: Database) -> None:
    store = await opened(database)
    try:
        session = await session_in(store)
        with psycopg.connect(database.dsn, autocommit=True) as admin:
            admin.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM PUBLIC")
        with capture_logs() as logs:
            await store.log.append(Append(session, (event(),)))
            async with asyncio.timeout(20):
                while not any(log["event"] == "event_hints.not_sent" for log in logs):  # noqa: ASYNC110 - logs do not signal
                    await asyncio.sleep(0.01)
            await store.log.append(Append(session, (event(),)))
        assert len(await store.log.read(session)) == 3
    finally:
        await store.close()


async def test_a_burst_is_said_once(database: Database) -> None:
    store = await opened(database)
    try:
        session = await session_in(store)
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as listener:
            await listener.execute("LISTEN wakeful_events")
            for _ in range(50):
                store.event_hints.grown(session)
            said = [note.payload async for note in listener.notifies(timeout=20, stop_after=1)]
        assert said == [session.session_id.hex]
    finally:
        await store.close()

"""Marks of workers in PostgreSQL: taken with the first heartbeat, gone with the connection, never through a pooler."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support.database import Database
from support.pools import LEASE, Executions, make_pool, read, running, submit, until

from wakeful.domain.errors import Unavailable
from wakeful.domain.ids import new_id
from wakeful.domain.ports.leases import LeaseKeeper
from wakeful.domain.ports.presence import mark_of
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.embedded import EmbeddedPostgres
from wakeful.persistence.schema import upgrade
from wakeful.persistence.store import Addresses, PostgresStore
from wakeful.scheduler.deaths import DeathSweep, DeathSweepConfig

pytestmark = [pytest.mark.anyio, pytest.mark.spec("QUE-4")]

WITHIN = 20.0
SHORT = DeathSweepConfig.of(timedelta(seconds=0.5))


@asynccontextmanager
async def opened(database: Database, *, direct: str | None = None) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(Addresses(app=database.dsn, direct=direct), role_prefix=database.role_prefix)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(database: Database) -> AsyncIterator[PostgresStore]:
    async with opened(database) as made:
        yield made


@pytest.fixture
def bell() -> Iterator[int]:
    """A descriptor that nobody rings."""
    read_end, write_end = os.pipe()
    yield read_end
    os.close(read_end)
    os.close(write_end)


async def marks(store: PostgresStore) -> frozenset[int]:
    presence = store.presence()
    try:
        seen = await presence.look()
        assert seen is not None
        return seen.marks
    finally:
        await presence.close()


async def until_marks(store: PostgresStore, wanted: set[int]) -> None:
    async with asyncio.timeout(WITHIN):
        while await marks(store) != wanted:  # noqa: ASYNC110 - a backend's exit has no signal
            await asyncio.sleep(0.01)


async def cut(database: Database, name: str = "%heartbeat") -> None:
    """End the backends of the connections of that name, as an administrator or a crash of one backend does."""
    statement = """
        SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE %s AND pid <> pg_backend_pid()"""
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as admin:
        assert (await admin.execute(statement, (name,))).rowcount > 0


def beat(keeper: LeaseKeeper, owner: UUID) -> None:
    keeper.heartbeat(owner, [], lease=LEASE)


async def test_the_first_heartbeat_takes_the_mark_and_the_end_of_the_connection_takes_it_away(
    store: PostgresStore,
) -> None:
    owner, keeper = new_id(), store.lease_keeper()
    beat(keeper, owner)
    assert await marks(store) == {mark_of(owner)}
    keeper.close()
    await until_marks(store, set())


async def test_an_owner_with_two_connections_is_there_until_both_have_ended(store: PostgresStore) -> None:
    owner, keepers = new_id(), [store.lease_keeper(), store.lease_keeper()]
    for keeper in keepers:
        beat(keeper, owner)
    keepers[0].close()
    assert await marks(store) == {mark_of(owner)}
    keepers[1].close()
    await until_marks(store, set())


async def test_the_end_of_the_connection_is_seen_at_once_and_the_next_heartbeat_takes_the_mark_again(
    store: PostgresStore, database: Database, bell: int
) -> None:
    owner, keeper = new_id(), store.lease_keeper()
    beat(keeper, owner)
    waiting = asyncio.create_task(asyncio.to_thread(called, keeper, bell))
    await cut(database)
    async with asyncio.timeout(WITHIN):
        await waiting
    assert await marks(store) == set()
    beat(keeper, owner)
    assert await marks(store) == {mark_of(owner)}
    keeper.close()


def called(keeper: LeaseKeeper, bell: int) -> None:
    while not keeper.wait(60.0, bell):
        pass


async def test_a_mark_is_the_databases_own(store: PostgresStore, database: Database) -> None:
    owner, keeper = new_id(), store.lease_keeper()
    beat(keeper, owner)
    async with await psycopg.AsyncConnection.connect(database.admin_dsn, autocommit=True) as elsewhere:
        await elsewhere.execute("SELECT pg_advisory_lock_shared(2003528549, 77)")
        assert await marks(store) == {mark_of(owner)}
    keeper.close()


async def test_a_living_worker_whose_connection_is_cut_again_and_again_loses_nothing(
    store: PostgresStore, database: Database
) -> None:
    executions = Executions(store, stay=True)
    run = await submit(store)
    presence = store.presence()
    sweep = DeathSweep(store.run_sweeps, presence, config=SHORT)
    try:
        async with running(make_pool(store, executions, heartbeat=timedelta(seconds=100))) as pool:
            await until(lambda: executions.started)
            await until_marks(store, {mark_of(pool.owner)})
            await sweep.run_once()
            for _ in range(3):
                await cut(database)
                await watch(sweep, 2 * SHORT.notice.total_seconds())
                await until_marks(store, {mark_of(pool.owner)})
            assert await run_is(store, run) == (RunStatus.RUNNING, 0)
            executions.let_go.set()
    finally:
        await presence.close()


async def test_a_watcher_whose_own_connection_is_cut_concludes_nothing_of_what_it_saw_before(
    store: PostgresStore, database: Database
) -> None:
    run, owner, keeper = await submit(store), new_id(), store.lease_keeper()
    await store.queue.claim(owner, capacity={PriorityClass.INTERACTIVE: 1}, agents=("clerk",), lease=LEASE, suspects=1)
    beat(keeper, owner)
    presence = store.presence()
    sweep = DeathSweep(store.run_sweeps, presence, config=SHORT)
    try:
        await sweep.run_once()
        keeper.close()
        await until_marks(store, set())
        await sweep.run_once()  # it is missed from here on
        await cut(database, "%")
        with pytest.raises(Unavailable):
            await sweep.run_once()
        await watch(sweep, 3 * SHORT.notice.total_seconds())
        assert await run_is(store, run) == (RunStatus.RUNNING, 0)
    finally:
        await presence.close()


async def test_a_restart_of_postgresql_is_nobodys_death() -> None:
    with EmbeddedPostgres(settings={"fsync": False}) as server:
        upgrade(server.dsn())
        store = PostgresStore(Addresses(app=server.dsn()))
        await store.open()
        presence = store.presence()
        sweep = DeathSweep(store.run_sweeps, presence, config=SHORT)
        executions = Executions(store, stay=True)
        run = await submit(store)
        try:
            async with running(make_pool(store, executions, heartbeat=timedelta(seconds=100))) as pool:
                await until(lambda: executions.started)
                await until_marks(store, {mark_of(pool.owner)})
                await sweep.run_once()
                await asyncio.to_thread(server.restart, immediate=True)
                with pytest.raises(Unavailable):
                    await sweep.run_once()
                await watch(sweep, 3 * SHORT.notice.total_seconds())
                await until_marks(store, {mark_of(pool.owner)})
                assert await run_is(store, run) == (RunStatus.RUNNING, 0)
                executions.let_go.set()
        finally:
            await presence.close()
            await store.close()


async def watch(sweep: DeathSweep, seconds: float) -> None:
    """Look as the scheduler does: a failed look is followed by the next."""
    until_then = time.monotonic() + seconds
    while time.monotonic() < until_then:
        with suppress(Unavailable):
            await sweep.run_once()
        await asyncio.sleep(SHORT.interval.total_seconds())


async def test_through_a_pooler_nobody_is_marked_and_nothing_is_seen(database: Database, tmp_path: Path) -> None:
    async with pooler(database, tmp_path) as pooled, opened(database, direct=pooled) as store:
        keeper, presence = store.lease_keeper(), store.presence()
        try:
            await asyncio.to_thread(beat, keeper, new_id())
            assert await presence.look() is None
            async with opened(database) as beside:
                assert await marks(beside) == set()
        finally:
            keeper.close()
            await presence.close()


@asynccontextmanager
async def pooler(database: Database, folder: Path) -> AsyncIterator[str]:
    """The address of a relay that gives clients a backend number of its own making, as poolers do."""
    parts = conninfo_to_dict(database.dsn)
    real = f"{parts['host']}/.s.PGSQL.{parts.get('port') or 5432}"
    relays: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(real)
        both = [
            asyncio.ensure_future(relay(reader, server_writer)),
            asyncio.ensure_future(relay(server_reader, writer)),
        ]
        relays.update(both)

    server = await asyncio.start_unix_server(serve, str(folder / ".s.PGSQL.5432"))
    try:
        yield make_conninfo(database.dsn, host=str(folder), port=5432)
    finally:
        server.close()
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)


KEY = b"K\x00\x00\x00\x0c"
"""The beginning of the message that tells a client its backend's number."""


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            head, key, tail = data.partition(KEY)
            writer.write(head + key + (b"\x7f\x00\x00\x01" + tail[4:] if key else tail))
    finally:
        writer.close()


async def run_is(store: PostgresStore, run: RunRef) -> tuple[RunStatus, int]:
    found = await read(store, run)
    return found.status, found.lease_expirations

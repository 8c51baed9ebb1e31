"""A store that cannot serve says why when it is opened, and leaves nothing open."""

import asyncio

import psycopg
import pytest
from psycopg import sql
from support.contract import TERM, World
from support.database import Database
from support.hot_paths import Admin, store_on

from wakeful.domain.errors import ConfigurationError, SchemaError, Unavailable
from wakeful.persistence.connecting import ConnectionSettings, connector
from wakeful.persistence.connections import HotPool
from wakeful.persistence.revision import EXPECTED_REVISION
from wakeful.persistence.roles import Mode, Role
from wakeful.persistence.schema import upgrade
from wakeful.persistence.store import Addresses, PostgresStore

pytestmark = pytest.mark.anyio


async def opened(dsn: str, **options: object) -> None:
    store = PostgresStore(Addresses(app=dsn), **options)  # type: ignore[arg-type]
    try:
        await store.open()
    finally:
        await store.close()


async def test_a_server_that_is_not_there_is_unavailable_and_no_password_is_said() -> None:
    with pytest.raises(Unavailable) as refused:
        await opened("postgresql://ada:sesame@127.0.0.1:1/none")
    assert "sesame" not in str(refused.value)


async def test_an_address_that_cannot_be_read_is_said_without_repeating_it() -> None:
    with pytest.raises(ConfigurationError) as refused:
        await opened("sesame is no address")
    assert "sesame" not in str(refused.value)


async def test_the_end_of_an_unescaped_password_is_not_taken_for_a_host_and_said() -> None:
    with pytest.raises(Unavailable) as refused:
        await opened("postgresql://ada:open@sesame@nowhere.invalid/x")
    assert "sesame" not in str(refused.value)


@pytest.mark.spec("MIG-4")
async def test_a_database_without_a_schema_says_what_to_run(empty_database: Database) -> None:
    with pytest.raises(SchemaError, match="wakeful db upgrade") as refused:
        await opened(empty_database.dsn)
    assert (refused.value.current, refused.value.expected) == (None, EXPECTED_REVISION)


@pytest.mark.spec("MIG-4")
async def test_another_revision_is_refused_naming_both(database: Database, admin: Admin) -> None:
    await admin.fetch("UPDATE wakeful.alembic_version SET version_num = 'abcdef012345'")
    with pytest.raises(SchemaError) as refused:
        await opened(database.dsn, role_prefix=database.role_prefix)
    assert "abcdef012345" in str(refused.value)
    assert EXPECTED_REVISION in str(refused.value)


async def test_roles_that_do_not_exist_are_named(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="nobody_app"):
        await opened(database.dsn, role_prefix="nobody")


async def test_the_recorded_prefix_is_found_without_saying_it(database: Database) -> None:
    await opened(database.dsn)


async def test_a_connection_that_lost_its_role_on_the_way_is_refused(database: Database) -> None:
    """What a pooler does: the options are dropped, and the login works as itself."""

    class Dropped(ConnectionSettings):
        def _options(self) -> str:
            return ""

    with pytest.raises(ConfigurationError, match="pooler"):
        await connector(Dropped(database.dsn, Role.APP, database.role_prefix))()


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [("synchronous_commit", "off", "synchronous_commit"), ("default_transaction_isolation", "serializable", "")],
)
async def test_a_server_that_may_lose_what_it_committed_is_refused(
    database: Database, admin: Admin, setting: str, value: str, said: str
) -> None:
    await admin.connection.execute(
        sql.SQL("ALTER DATABASE {} SET {} TO {}").format(sql.Identifier(database.name), sql.SQL(setting), value)
    )
    if said:
        with pytest.raises(ConfigurationError, match=said):
            await opened(database.dsn, role_prefix=database.role_prefix)
    else:
        # Our own connections ask for READ COMMITTED, whatever the database's default is.
        await opened(database.dsn, role_prefix=database.role_prefix)


async def test_ports_of_a_store_that_is_not_open_say_so(database: Database) -> None:
    store = PostgresStore(Addresses(app=database.dsn))
    with pytest.raises(ConfigurationError, match="not open"):
        _ = store.log
    with pytest.raises(ConfigurationError, match="not open"):
        store.lease_keeper()


async def test_opening_and_closing_twice_change_nothing(database: Database) -> None:
    async with store_on(database) as store:
        log = store.log
        await store.open()
        assert store.log is log
    await store.close()


async def test_more_tasks_than_connections_take_turns(database: Database) -> None:
    async with store_on(database, pool_size=2) as store:
        world = World(store)
        session = (await world.session()).ref
        reads = await asyncio.gather(*(store.log.read(session) for _ in range(40)))
    assert {len(events) for events in reads} == {1}


async def test_a_connection_that_died_in_the_pool_is_replaced(database: Database, admin: Admin) -> None:
    pool = HotPool(connector(ConnectionSettings(database.dsn, Role.APP, database.role_prefix)), size=1)
    await pool.open()
    async with pool.connection() as connection:
        pid = connection.info.backend_pid
    await admin.fetch("SELECT pg_terminate_backend(%s)", [pid])
    async with asyncio.timeout(30):
        while True:
            if not await admin.fetch("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]):
                break
            await asyncio.sleep(0.01)  # polled: there is nothing to wait on
    with pytest.raises(psycopg.OperationalError):
        async with pool.connection() as connection:
            await connection.execute("SELECT 1")
    async with pool.connection() as connection:
        await connection.execute("SELECT 1")
    assert pool.in_use == 0
    await pool.close()


async def test_a_pool_serves_the_loop_that_opened_it_and_no_other(database: Database) -> None:
    pool = HotPool(connector(ConnectionSettings(database.dsn, Role.APP, database.role_prefix)), size=1)
    await pool.open()

    async def take() -> None:
        async with pool.connection():
            pass

    with pytest.raises(ConfigurationError, match="event loop"):
        await asyncio.to_thread(asyncio.run, take())
    await pool.close()


async def test_a_login_without_roles_serves_every_hot_path_in_single_role_mode(empty_database: Database) -> None:
    """It may not create roles, so it works as itself: tenants apart, the worker's view opened by a setting."""
    login = f"{empty_database.role_prefix}owner"
    async with await psycopg.AsyncConnection.connect(empty_database.dsn, autocommit=True) as connection:
        await connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(login)))
        await connection.execute(
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(empty_database.name), sql.Identifier(login))
        )
    dsn = empty_database.server.dsn(empty_database.name, user=login)
    try:
        result = await asyncio.to_thread(upgrade, dsn, role_prefix=empty_database.role_prefix)
        assert result.mode is Mode.SINGLE_ROLE
        store = PostgresStore(Addresses(app=dsn))
        await store.open()
        world = World(store)
        lease = await world.running()
        keeper = store.lease_keeper()
        try:
            beat = await asyncio.to_thread(keeper.heartbeat, world.owner, [lease], lease=TERM)
            assert beat.renewed == {lease.run.run_id}
        finally:
            await asyncio.to_thread(keeper.close)
        assert (await store.queue.load(lease)).run.ref == lease.run
        await world.end(lease)
        await store.close()
    finally:
        async with await psycopg.AsyncConnection.connect(empty_database.dsn, autocommit=True) as connection:
            await connection.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO wakeful").format(sql.Identifier(empty_database.name))
            )
            await connection.execute(sql.SQL("REASSIGN OWNED BY {} TO wakeful").format(sql.Identifier(login)))

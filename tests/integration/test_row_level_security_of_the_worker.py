"""The worker sees the queue of every tenant and the content of none, and nobody else gains that view."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from support.database import ROLE_PREFIX, Database, database_from
from support.schema import Direct, as_role, as_user, insert_sample_rows, set_tenant, tenant_tables

from wakeful.embedded import EmbeddedPostgres
from wakeful.persistence.roles import Role, role_name
from wakeful.persistence.schema.grants import WORKER

pytestmark = pytest.mark.spec("LOG-9")

TENANTS = (UUID(int=1), UUID(int=2))
VISIBLE = [table for table, commands in WORKER.items() if table != "sweep_ticks" and "SELECT" in commands]


@pytest.fixture(scope="module")
def shared(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[Database]:
    with database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as database:
        for tenant in TENANTS:
            insert_sample_rows(database.dsn, tenant)
        yield database


@pytest.fixture
def worker(shared: Database) -> Iterator[Direct]:
    with psycopg.connect(as_role(shared.dsn, shared.role_prefix, Role.WORKER)) as connection:
        yield connection
        connection.rollback()


def columns(database: Database, table: str) -> list[str]:
    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'wakeful' AND table_name = %s",
            [table],
        ).fetchall()
    return [row[0] for row in rows]


def select(connection: Direct, table: str, column: str) -> list[object]:
    statement = sql.SQL("SELECT {} FROM wakeful.{}").format(sql.Identifier(column), sql.Identifier(table))
    return [row[0] for row in connection.execute(statement)]


@pytest.mark.parametrize("table", VISIBLE)
def test_the_worker_sees_rows_of_every_tenant(worker: Direct, table: str) -> None:
    """The canary: with forced security a forgotten policy looks exactly like an empty table."""
    assert set(select(worker, table, "tenant_id")) == set(TENANTS)


def test_a_tenant_left_set_does_not_narrow_the_workers_view(worker: Direct) -> None:
    set_tenant(worker, TENANTS[0])
    assert set(select(worker, "runs", "tenant_id")) == set(TENANTS)


def test_the_worker_reads_no_column_that_is_not_granted_by_name(shared: Database) -> None:
    dsn = as_role(shared.dsn, shared.role_prefix, Role.WORKER)
    for table, _ in tenant_tables(shared.dsn):
        granted = WORKER.get(table, {}).get("SELECT") or ()
        for column in columns(shared, table):
            with psycopg.connect(dsn) as connection:
                if column in granted:
                    assert len(select(connection, table, column)) == len(TENANTS)
                    continue
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    select(connection, table, column)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("events", "payload"),
        ("runs", "metadata"),
        ("runs", "failure"),
        ("run_checkpoints", "state"),
        ("tool_invocations", "context_updates"),
        ("sessions", "title"),
        ("artifacts", "storage_key"),
        ("session_deletion_artifacts", "artifact"),
        ("idempotency_keys", "request_hash"),
    ],
)
def test_the_worker_cannot_read_content(worker: Direct, table: str, column: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
        select(worker, table, column)


def test_the_worker_updates_exactly_the_lease_of_any_tenants_run(shared: Database) -> None:
    dsn = as_role(shared.dsn, shared.role_prefix, Role.WORKER)
    granted = WORKER["runs"]["UPDATE"] or ()
    for column in columns(shared, "runs"):
        if column == "due_at":  # generated: nobody can
            continue
        name = sql.Identifier(column)
        with psycopg.connect(dsn) as connection:
            statement = sql.SQL("UPDATE wakeful.runs SET {} = {}").format(name, name if column in granted else sql.NULL)
            if column in granted:
                assert connection.execute(statement).rowcount == len(TENANTS)
                connection.rollback()
                continue
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_the_worker_changes_no_other_tenant_table(shared: Database) -> None:
    dsn = as_role(shared.dsn, shared.role_prefix, Role.WORKER)
    for table, column in tenant_tables(shared.dsn):
        if table == "runs":
            continue
        name = sql.Identifier(column)
        with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL("UPDATE wakeful.{} SET {} = NULL").format(sql.Identifier(table), name))
        with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL("INSERT INTO wakeful.{} DEFAULT VALUES").format(sql.Identifier(table)))


def test_the_worker_deletes_expired_keys_of_any_tenant_and_nothing_else(shared: Database, worker: Direct) -> None:
    assert worker.execute("DELETE FROM wakeful.idempotency_keys WHERE expires_at > now()").rowcount == len(TENANTS)
    worker.rollback()
    for table, _ in tenant_tables(shared.dsn):
        if table != "idempotency_keys":
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(sql.SQL("DELETE FROM wakeful.{}").format(sql.Identifier(table)))
            worker.rollback()


def test_the_worker_keeps_the_ticks_and_nobody_else_does(shared: Database, worker: Direct) -> None:
    worker.execute("INSERT INTO wakeful.sweep_ticks VALUES ('x', now(), %s)", [uuid4()])
    worker.execute("UPDATE wakeful.sweep_ticks SET ticked_at = now()")
    for role in (Role.APP, Role.READONLY):
        with (
            psycopg.connect(as_role(shared.dsn, shared.role_prefix, role)) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("SELECT * FROM wakeful.sweep_ticks")


@pytest.fixture
def inheriting(shared: Database) -> Iterator[str]:
    """A login that inherits all three roles, as PostgreSQL 15 grants them."""
    login = f"inheriting_{uuid4().hex[:8]}"
    with psycopg.connect(shared.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN INHERIT").format(sql.Identifier(login)))
        for role in Role:
            statement = sql.SQL("GRANT {} TO {}").format(
                sql.Identifier(role_name(shared.role_prefix, role)), sql.Identifier(login)
            )
            connection.execute(statement)
        yield as_user(shared.dsn, login)
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))


def test_a_login_that_inherits_every_role_does_not_gain_the_workers_view(shared: Database, inheriting: str) -> None:
    with psycopg.connect(inheriting) as connection:
        for table, column in tenant_tables(shared.dsn):
            assert select(connection, table, column) == [], table
        set_tenant(connection, TENANTS[0])
        assert set(select(connection, "runs", "tenant_id")) == {TENANTS[0]}


def test_the_same_login_has_the_workers_view_once_it_is_the_worker(shared: Database, inheriting: str) -> None:
    with psycopg.connect(as_role(inheriting, shared.role_prefix, Role.WORKER)) as connection:
        assert set(select(connection, "runs", "tenant_id")) == set(TENANTS)


def test_the_scope_setting_of_single_role_mode_opens_nothing_here(shared: Database) -> None:
    for role in (Role.APP, Role.READONLY):
        with psycopg.connect(as_role(shared.dsn, shared.role_prefix, role)) as connection:
            connection.execute("SELECT set_config('wakeful.scope', 'worker', true)")
            assert select(connection, "runs", "tenant_id") == []

"""Row-level security, asked of the catalogue: whatever table a tenant's rows are in, only that tenant sees them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from support.database import ROLE_PREFIX, Database, database_from
from support.schema import Direct, as_role, as_user, insert_sample_rows, set_tenant, tenant_tables

from wakeful.embedded import EmbeddedPostgres
from wakeful.persistence.roles import Role
from wakeful.persistence.tables import metadata

pytestmark = pytest.mark.spec("LOG-9")

READERS = [Role.APP, Role.READONLY]


@dataclass(frozen=True)
class Tenants:
    """A migrated database in which two tenants have a row in every table, and an owner without superuser rights."""

    database: Database
    owner: str
    one: UUID
    other: UUID
    tables: list[tuple[str, str]]

    def dsn_of(self, role: Role | None) -> str:
        """The address for a role, or for the owner of the tables."""
        if role is None:
            return as_user(self.database.dsn, self.owner)
        return as_role(self.database.dsn, self.database.role_prefix, role)


@pytest.fixture(scope="module")
def tenants(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[Tenants]:
    owner = f"rls_owner_{uuid4().hex[:8]}"
    with database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as database:
        one, other = uuid4(), uuid4()
        insert_sample_rows(database.dsn, one)
        insert_sample_rows(database.dsn, other)
        give_tables_to(database, owner)
        yield Tenants(database, owner, one, other, tenant_tables(database.dsn))
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(owner)))


def give_tables_to(database: Database, owner: str) -> None:
    name = sql.Identifier(owner)
    with psycopg.connect(database.dsn) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        connection.execute(sql.SQL("ALTER SCHEMA wakeful OWNER TO {}").format(name))
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'wakeful'").fetchall()
        for (table,) in tables:
            connection.execute(sql.SQL("ALTER TABLE wakeful.{} OWNER TO {}").format(sql.Identifier(table), name))


def seen(connection: Direct, table: str, column: str) -> set[UUID]:
    """The tenants whose rows a plain SELECT returns."""
    statement = sql.SQL("SELECT {} FROM wakeful.{}").format(sql.Identifier(column), sql.Identifier(table))
    return {row[0] for row in connection.execute(statement)}


def everywhere(tenants: Tenants, role: Role | None, prepare: Callable[[Direct], object]) -> dict[str, set[UUID]]:
    """Per table, the tenants a role sees after `prepare`."""
    with psycopg.connect(tenants.dsn_of(role)) as connection:
        prepare(connection)
        return {table: seen(connection, table, column) for table, column in tenants.tables}


def nothing(tenants: Tenants) -> dict[str, set[UUID]]:
    return {table: set() for table, _ in tenants.tables}


def test_every_declared_table_with_a_tenant_is_among_those_tested(tenants: Tenants) -> None:
    declared = {table.name for table in metadata.tables.values() if "tenant_id" in table.columns}
    assert {table for table, _ in tenants.tables} == declared | {"tenants"}
    assert len(declared) >= 13


def test_every_tenant_table_has_rows_of_both_tenants_to_hide(tenants: Tenants) -> None:
    with psycopg.connect(tenants.database.dsn) as superuser:
        for table, column in tenants.tables:
            assert {tenants.one, tenants.other} <= seen(superuser, table, column), table


def test_every_tenant_table_has_forced_row_level_security_and_the_tenants_policy(tenants: Tenants) -> None:
    with psycopg.connect(tenants.database.dsn) as connection:
        rows = connection.execute(
            """
            SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
                   EXISTS (SELECT FROM pg_policies AS p WHERE p.schemaname = 'wakeful' AND p.tablename = c.relname
                              AND p.policyname = 'one_tenant' AND p.permissive = 'PERMISSIVE'
                              AND p.qual = p.with_check AND p.qual LIKE '%wakeful.tenant%')
              FROM pg_class AS c WHERE c.relnamespace = 'wakeful'::regnamespace AND c.relkind IN ('r', 'p')
            """
        ).fetchall()
    secured = {table for table, forced, has_policy in rows if forced and has_policy}
    assert secured == {table for table, _ in tenants.tables}


def test_every_key_of_a_tenant_table_starts_with_the_tenant(tenants: Tenants) -> None:
    with psycopg.connect(tenants.database.dsn) as connection:
        rows = connection.execute(
            """
            SELECT k.conrelid::regclass::text, k.conname FROM pg_constraint AS k
              JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
             WHERE k.connamespace = 'wakeful'::regnamespace AND k.contype IN ('p', 'u', 'f')
               AND a.attname <> 'tenant_id'
            """
        ).fetchall()
    tenantless = {"pk_tenants", "pk_installation", "pk_sweep_ticks", "alembic_version_pkc"}
    assert {constraint for _, constraint in rows} == tenantless


@pytest.mark.parametrize("role", [*READERS, Role.WORKER])
def test_no_serving_role_owns_anything_or_is_above_policies(tenants: Tenants, role: Role) -> None:
    with psycopg.connect(tenants.dsn_of(role)) as connection:
        row = connection.execute(
            """
            SELECT rolsuper OR rolbypassrls OR rolcanlogin, EXISTS (SELECT FROM pg_class WHERE relowner = r.oid)
              FROM pg_roles AS r WHERE rolname = current_user
            """
        ).fetchone()
    assert row == (False, False)


@pytest.mark.parametrize("role", [*READERS, None], ids=["app", "readonly", "owner"])
def test_without_a_tenant_nothing_is_seen(tenants: Tenants, role: Role | None) -> None:
    assert everywhere(tenants, role, lambda connection: None) == nothing(tenants)


@pytest.mark.parametrize("role", [*READERS, None], ids=["app", "readonly", "owner"])
def test_with_an_empty_tenant_nothing_is_seen(tenants: Tenants, role: Role | None) -> None:
    assert everywhere(tenants, role, lambda connection: set_tenant(connection, "")) == nothing(tenants)


@pytest.mark.parametrize("role", [*READERS, None], ids=["app", "readonly", "owner"])
def test_with_a_foreign_tenant_nothing_is_seen(tenants: Tenants, role: Role | None) -> None:
    assert everywhere(tenants, role, lambda connection: set_tenant(connection, uuid4())) == nothing(tenants)


@pytest.mark.parametrize("role", [*READERS, None], ids=["app", "readonly", "owner"])
def test_with_its_tenant_exactly_its_rows_are_seen(tenants: Tenants, role: Role | None) -> None:
    expected = {table: {tenants.one} for table, _ in tenants.tables}
    assert everywhere(tenants, role, lambda connection: set_tenant(connection, tenants.one)) == expected


@pytest.mark.parametrize("role", READERS)
def test_garbage_instead_of_a_tenant_is_an_error(tenants: Tenants, role: Role) -> None:
    for table, column in tenants.tables:
        with psycopg.connect(tenants.dsn_of(role)) as connection:
            set_tenant(connection, "x' OR true --")
            with pytest.raises(psycopg.errors.InvalidTextRepresentation):
                seen(connection, table, column)


def test_a_tenant_does_not_outlive_its_transaction(tenants: Tenants) -> None:
    with psycopg.connect(tenants.dsn_of(Role.APP)) as connection:
        with connection.transaction():
            set_tenant(connection, tenants.one)
            assert seen(connection, "runs", "tenant_id") == {tenants.one}
        with connection.transaction():
            assert seen(connection, "runs", "tenant_id") == set()


@pytest.mark.parametrize("owner", [False, True], ids=["app", "owner"])
def test_another_tenants_rows_cannot_be_written(tenants: Tenants, owner: bool) -> None:
    with psycopg.connect(tenants.dsn_of(None if owner else Role.APP)) as connection:
        set_tenant(connection, tenants.one)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(
                "INSERT INTO wakeful.sessions (tenant_id, id, principal_id, agent) VALUES (%s, %s, %s, 'a')",
                [tenants.other, uuid4(), uuid4()],
            )


@pytest.mark.parametrize("owner", [False, True], ids=["app", "owner"])
def test_another_tenants_rows_cannot_be_changed_or_taken_over(tenants: Tenants, owner: bool) -> None:
    with psycopg.connect(tenants.dsn_of(None if owner else Role.APP)) as connection:
        set_tenant(connection, tenants.one)
        changed = connection.execute("UPDATE wakeful.runs SET agent = 'x' WHERE tenant_id = %s", [tenants.other])
        assert changed.rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("UPDATE wakeful.tenants SET id = %s", [uuid4()])
        connection.rollback()


def test_a_row_cannot_reference_another_tenants_row(tenants: Tenants) -> None:
    """Foreign keys ignore policies, so every one of them carries the tenant."""
    with psycopg.connect(tenants.database.dsn) as connection:
        row = connection.execute("SELECT id FROM wakeful.sessions WHERE tenant_id = %s", [tenants.other]).fetchone()
        assert row
    with psycopg.connect(tenants.dsn_of(Role.APP)) as connection:
        set_tenant(connection, tenants.one)
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute(
                """
                INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status)
                VALUES (%s, %s, %s, %s, 'a', 1, 'QUEUED')
                """,
                [tenants.one, uuid4(), row[0], uuid4()],
            )


def test_a_read_only_role_cannot_write_anything(tenants: Tenants) -> None:
    for table, column in tenants.tables:
        for statement in ("DELETE FROM wakeful.{}", "UPDATE wakeful.{} SET {} = {}"):
            with psycopg.connect(tenants.dsn_of(Role.READONLY)) as connection:
                set_tenant(connection, tenants.one)
                name = sql.Identifier(column)
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(sql.SQL(statement).format(sql.Identifier(table), name, name))


def test_only_the_owner_may_list_tenants_for_a_migration(tenants: Tenants) -> None:
    def as_migrations(connection: Direct) -> set[UUID]:
        connection.execute("SELECT set_config('wakeful.scope', 'migrations', true)")
        return seen(connection, "tenants", "id")

    with psycopg.connect(tenants.dsn_of(None)) as owner:
        assert as_migrations(owner) == {tenants.one, tenants.other}
    for role in READERS:
        with psycopg.connect(tenants.dsn_of(role)) as connection:
            assert as_migrations(connection) == set()

"""A process works with exactly one revision of the schema; any other is refused by name, and never repaired."""

import psycopg
import pytest
from support.catalogue import catalogue
from support.database import Database
from support.schema import as_role, migrate, revisions, sqlalchemy_connection

from wakeful.domain.errors import SchemaError
from wakeful.persistence.revision import EXPECTED_REVISION, check_revision
from wakeful.persistence.roles import Role
from wakeful.persistence.schema import check, upgrade

pytestmark = [pytest.mark.gate("revision_pinned"), pytest.mark.spec("MIG-4")]


def refusal(dsn: str) -> SchemaError:
    with sqlalchemy_connection(dsn) as connection, pytest.raises(SchemaError) as refused:
        check_revision(connection)
    return refused.value


def execute(database: Database, statement: str) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize("role", list(Role))
def test_the_expected_revision_is_accepted_by_every_role(database: Database, role: Role) -> None:
    with sqlalchemy_connection(as_role(database.dsn, database.role_prefix, role)) as connection:
        check_revision(connection)


def test_an_empty_database_is_refused(empty_database: Database) -> None:
    error = refusal(empty_database.dsn)
    assert error.current is None
    assert EXPECTED_REVISION in str(error)
    assert "wakeful db upgrade" in str(error)


def test_an_older_schema_is_refused_naming_both_revisions_and_is_not_migrated(empty_database: Database) -> None:
    older = revisions()[-2].revision
    migrate(empty_database.dsn, older)
    before = catalogue(empty_database.dsn)
    error = refusal(empty_database.dsn)
    assert (error.current, error.expected) == (older, EXPECTED_REVISION)
    assert older in str(error)
    assert EXPECTED_REVISION in str(error)
    assert "wakeful db upgrade" in str(error)
    assert catalogue(empty_database.dsn) == before


def test_a_newer_schema_is_refused(database: Database) -> None:
    execute(database, "UPDATE wakeful.alembic_version SET version_num = 'ffffffffffff'")
    error = refusal(database.dsn)
    assert "ffffffffffff" in str(error)
    assert "newer" in str(error)


def test_a_newer_schema_is_not_upgraded_either(database: Database) -> None:
    execute(database, "UPDATE wakeful.alembic_version SET version_num = 'ffffffffffff'")
    with pytest.raises(SchemaError, match="newer release"):
        upgrade(database.dsn)


def test_two_revisions_at_once_are_refused(database: Database) -> None:
    execute(database, "INSERT INTO wakeful.alembic_version VALUES ('ffffffffffff')")
    assert "2 revisions" in str(refusal(database.dsn))


def test_a_version_table_that_was_emptied_counts_as_no_schema(database: Database) -> None:
    execute(database, "DELETE FROM wakeful.alembic_version")
    assert refusal(database.dsn).current is None


def test_an_index_whose_build_was_interrupted_is_refused_by_name(database: Database) -> None:
    execute(database, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'wakeful.ix_runs_queued'::regclass")
    assert "ix_runs_queued" in str(refusal(database.dsn))
    assert check(database.dsn).invalid_indexes == ("ix_runs_queued",)


def test_a_login_without_rights_is_told_so(database: Database) -> None:
    login = f"{database.role_prefix}stranger"
    execute(database, f'DROP ROLE IF EXISTS "{login}"')
    execute(database, f'CREATE ROLE "{login}" LOGIN')
    try:
        error = refusal(database.server.dsn(database.name, user=login))
        assert "cannot be read" in str(error)
    finally:
        execute(database, f'DROP ROLE "{login}"')

"""Every revision goes up from its predecessor, down again and up again, with rows in every table."""

from collections import Counter
from uuid import uuid4

import psycopg
import pytest
from alembic.script import Script
from psycopg import sql
from support.catalogue import catalogue
from support.database import Database
from support.schema import insert_sample_rows, migrate, migrate_down, revisions, sqlalchemy_connection

from wakeful.persistence.revision import current_revision

pytestmark = [pytest.mark.gate("migration_stepwise"), pytest.mark.spec("MIG-3")]

REVISIONS = revisions()
STRUCTURAL = [script for script in REVISIONS if not script.module.data_revision]
DATA = [script for script in REVISIONS if script.module.data_revision]


def before(script: Script) -> str:
    return str(script.down_revision or "base")


def row_counts(dsn: str) -> Counter[str]:
    """Rows per table of schema `wakeful`, the version table left out."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'wakeful' AND tablename <> 'alembic_version'"
        ).fetchall()
        counted: Counter[str] = Counter()
        for (table,) in tables:
            row = connection.execute(
                sql.SQL("SELECT count(*) FROM wakeful.{}").format(sql.Identifier(table))
            ).fetchone()
            counted[table] = row[0] if row else 0
        return counted


def at_predecessor_with_rows(database: Database, script: Script) -> None:
    if script.down_revision is None:
        return
    migrate(database.dsn, before(script))
    for _ in range(2):
        insert_sample_rows(database.dsn, uuid4())


@pytest.mark.parametrize("script", REVISIONS, ids=lambda script: script.revision)
def test_a_revision_goes_up_from_its_predecessor_and_loses_no_row(empty_database: Database, script: Script) -> None:
    at_predecessor_with_rows(empty_database, script)
    rows = row_counts(empty_database.dsn)
    migrate(empty_database.dsn, script.revision)
    assert row_counts(empty_database.dsn) | rows == row_counts(empty_database.dsn)
    with sqlalchemy_connection(empty_database.dsn) as connection:
        assert current_revision(connection) == script.revision


@pytest.mark.parametrize("script", STRUCTURAL, ids=lambda script: script.revision)
def test_a_structural_revision_goes_down_to_exactly_what_was_there_before(
    empty_database: Database, script: Script
) -> None:
    at_predecessor_with_rows(empty_database, script)
    if script.down_revision is None:
        migrate(empty_database.dsn, script.revision)
        migrate_down(empty_database.dsn, "base")  # what is left is the schema with Alembic's own table
    rows, there_before = row_counts(empty_database.dsn), catalogue(empty_database.dsn)
    migrate(empty_database.dsn, script.revision)
    after = catalogue(empty_database.dsn)
    migrate_down(empty_database.dsn, before(script))
    assert catalogue(empty_database.dsn) == there_before
    assert row_counts(empty_database.dsn) == rows
    migrate(empty_database.dsn, script.revision)
    assert catalogue(empty_database.dsn) == after


@pytest.mark.parametrize("script", DATA, ids=lambda script: script.revision)
def test_a_data_revision_refuses_to_go_down_and_changes_nothing(empty_database: Database, script: Script) -> None:
    at_predecessor_with_rows(empty_database, script)
    migrate(empty_database.dsn, script.revision)
    with pytest.raises(NotImplementedError):
        migrate_down(empty_database.dsn, before(script))
    with sqlalchemy_connection(empty_database.dsn) as connection:
        assert current_revision(connection) == script.revision


def test_the_sample_rows_fill_every_table(empty_database: Database) -> None:
    """Otherwise a step over rows would be a step over nothing."""
    migrate(empty_database.dsn, "head")
    insert_sample_rows(empty_database.dsn, uuid4())
    empty = [table for table, count in row_counts(empty_database.dsn).items() if count == 0]
    assert empty == ["installation"]

"""Upgrades of one database wait for each other; one that is killed is finished by the next."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from alembic import command
from support.catalogue import catalogue
from support.database import Database
from support.schema import revisions, sqlalchemy_connection, wait_until_blocked

from wakeful.domain.errors import SchemaError, Timeout
from wakeful.persistence.revision import EXPECTED_REVISION, check_revision
from wakeful.persistence.schema import upgrade
from wakeful.persistence.schema.upgrade import migration_config

pytestmark = [pytest.mark.gate("migration_clean"), pytest.mark.spec("MIG-3")]

UPGRADE = (
    "import sys; from wakeful.persistence.schema import upgrade; print(upgrade(sys.argv[1], role_prefix=sys.argv[2]))"
)
AT_ONCE = 6


def start_upgrade(database: Database) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", UPGRADE, database.dsn, database.role_prefix],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_at_head(database: Database) -> None:
    with sqlalchemy_connection(database.dsn) as connection:
        check_revision(connection)
    with sqlalchemy_connection(database.dsn) as connection:
        command.check(migration_config(connection))


@contextmanager
def stopped_at(database: Database, statement: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Hold a lock until the block ends, so that an upgrade stands still somewhere known."""
    with psycopg.connect(database.dsn) as connection:
        connection.execute(statement.encode())
        yield connection
        connection.rollback()


def test_many_upgrades_at_once_all_succeed_and_only_one_migrates(empty_database: Database) -> None:
    processes = [start_upgrade(empty_database) for _ in range(AT_ONCE)]
    answers = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0] * AT_ONCE, answers
    assert sum("from_revision=None" in out for out, _ in answers) == 1
    assert_at_head(empty_database)


@pytest.mark.parametrize("script", revisions()[1:], ids=lambda script: script.revision)
def test_an_upgrade_killed_inside_a_revision_is_finished_by_the_next(empty_database: Database, script: object) -> None:
    before = script.down_revision  # type: ignore[attr-defined]
    with sqlalchemy_connection(empty_database.dsn) as connection:
        command.upgrade(migration_config(connection), before)
    # Alembic writes the revision last, so whoever waits for this row has done everything else of it.
    with stopped_at(empty_database, "LOCK TABLE wakeful.alembic_version IN SHARE MODE"):
        process = start_upgrade(empty_database)
        wait_until_blocked(empty_database)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    with sqlalchemy_connection(empty_database.dsn) as connection, pytest.raises(SchemaError) as refused:
        check_revision(connection)
    assert refused.value.current == before
    upgrade(empty_database.dsn, role_prefix=empty_database.role_prefix)
    assert_at_head(empty_database)


def test_an_upgrade_killed_before_its_roles_are_set_up_is_finished_by_the_next(empty_database: Database) -> None:
    with sqlalchemy_connection(empty_database.dsn) as connection:
        command.upgrade(migration_config(connection), "head")
    with stopped_at(empty_database, "LOCK TABLE wakeful.runs IN ACCESS SHARE MODE"):
        process = start_upgrade(empty_database)
        wait_until_blocked(empty_database)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    upgrade(empty_database.dsn, role_prefix=empty_database.role_prefix)
    once = catalogue(empty_database.dsn)
    upgrade(empty_database.dsn, role_prefix=empty_database.role_prefix)
    assert catalogue(empty_database.dsn) == once


def test_upgrading_again_changes_nothing(database: Database) -> None:
    before = catalogue(database.dsn)
    result = upgrade(database.dsn)
    assert (result.from_revision, result.to_revision, result.roles_created) == (
        EXPECTED_REVISION,
        EXPECTED_REVISION,
        (),
    )
    assert result.role_prefix == database.role_prefix
    assert catalogue(database.dsn) == before


def test_an_upgrade_says_when_another_one_does_not_end(database: Database) -> None:
    with psycopg.connect(database.dsn) as other:
        other.execute("SELECT pg_advisory_lock(x'77616B6566756C'::bigint)")
        with pytest.raises(Timeout, match="another upgrade"):
            upgrade(database.dsn, lock_wait=timedelta(0))


def test_a_waiting_upgrade_holds_no_snapshot_that_an_index_build_would_wait_for(database: Database) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(x'77616B6566756C'::bigint)")
        process = start_upgrade(database)
        try:
            other.execute("SET statement_timeout = '20s'")
            other.execute("CREATE INDEX CONCURRENTLY built_meanwhile ON wakeful.tenants (name)")
        finally:
            other.execute("SELECT pg_advisory_unlock_all()")
            process.communicate(timeout=60)
    assert process.returncode == 0

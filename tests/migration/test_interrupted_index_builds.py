"""An interrupted concurrent build leaves an invalid index: refused at start, built anew by the next upgrade."""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from alembic.script import Script
from support.database import Database
from support.schema import insert_sample_rows, migrate, revisions, sqlalchemy_connection

from wakeful.domain.errors import SchemaError
from wakeful.persistence.revision import check_revision
from wakeful.persistence.schema import check, upgrade
from wakeful.persistence.schema.upgrade import migration_config

pytestmark = [pytest.mark.gate("migration_stepwise"), pytest.mark.spec("MIG-2")]

BUILD = re.compile(r'build_concurrently\(\s*"(?P<index>\w+)",\s*"ON wakeful\.(?P<table>\w+)')
UPGRADE = "import sys; from wakeful.persistence.schema import upgrade; upgrade(sys.argv[1], role_prefix=sys.argv[2])"


def builds() -> list[tuple[Script, str, str]]:
    """Every revision that builds an index concurrently, with the index and its table."""
    found = ((script, BUILD.search(Path(script.path).read_text(encoding="utf-8"))) for script in revisions())
    return [(script, match["index"], match["table"]) for script, match in found if match]


def wait_for(database: Database, question: str) -> None:
    turn = threading.Event()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for _ in range(2000):
            row = connection.execute(question.encode()).fetchone()
            if row and row[0]:
                return
            turn.wait(0.01)  # between two looks; the fact, not the time, ends the loop
    raise AssertionError(f"never came true: {question}")


def test_there_is_an_index_build_to_interrupt() -> None:
    assert builds()


@pytest.mark.parametrize(
    ("script", "index", "table"), builds(), ids=lambda value: str(getattr(value, "revision", value))
)
def test_a_build_killed_half_way_is_refused_at_start_and_finished_by_the_next_upgrade(
    empty_database: Database, script: Script, index: str, table: str
) -> None:
    migrate(empty_database.dsn, str(script.down_revision))
    writing = psycopg.connect(empty_database.dsn)
    process = None
    try:
        # The build creates its index, then waits for every transaction that has written to the table.
        writing.execute(f"LOCK TABLE wakeful.{table} IN ROW EXCLUSIVE MODE".encode())
        process = subprocess.Popen([sys.executable, "-c", UPGRADE, empty_database.dsn, empty_database.role_prefix])
        wait_for(
            empty_database, f"SELECT NOT indisvalid FROM pg_index WHERE indexrelid = to_regclass('wakeful.{index}')"
        )
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        pid = "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE application_name = 'wakeful db'"
        wait_for(empty_database, f"{pid} AND datname = current_database()")
    finally:
        writing.close()
    report = check(empty_database.dsn)
    assert report.invalid_indexes == (index,)
    with sqlalchemy_connection(empty_database.dsn) as connection, pytest.raises(SchemaError):
        check_revision(connection)
    upgrade(empty_database.dsn, role_prefix=empty_database.role_prefix)
    with sqlalchemy_connection(empty_database.dsn) as connection:
        check_revision(connection)
    with sqlalchemy_connection(empty_database.dsn) as connection:
        command.check(migration_config(connection))


def test_writers_go_on_while_an_index_is_built(empty_database: Database) -> None:
    script, index, table = builds()[0]
    migrate(empty_database.dsn, str(script.down_revision))
    with psycopg.connect(empty_database.dsn) as writing:
        writing.execute(f"LOCK TABLE wakeful.{table} IN ROW EXCLUSIVE MODE".encode())
        process = subprocess.Popen([sys.executable, "-c", UPGRADE, empty_database.dsn, empty_database.role_prefix])
        wait_for(empty_database, f"SELECT to_regclass('wakeful.{index}') IS NOT NULL")
        insert_sample_rows(empty_database.dsn, uuid4())
        writing.rollback()
        assert process.wait(timeout=60) == 0

"""Tools for tests about the schema itself: walking revisions, reading the catalogue, filling every table."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import Script, ScriptDirectory
from psycopg import conninfo
from sqlalchemy import Connection, NullPool, create_engine

from support.database import Database
from wakeful.persistence.roles import Role, role_option
from wakeful.persistence.schema.upgrade import migration_config

Direct = psycopg.Connection[tuple[Any, ...]]

SAMPLE_ROWS = (Path(__file__).parent / "sample_rows.sql").read_text(encoding="utf-8")

TENANT_TABLES = """
SELECT c.relname, CASE c.relname WHEN 'tenants' THEN 'id' ELSE 'tenant_id' END
  FROM pg_catalog.pg_class AS c
 WHERE c.relnamespace = 'wakeful'::regnamespace AND c.relkind IN ('r', 'p')
   AND (c.relname = 'tenants' OR EXISTS (
        SELECT FROM pg_catalog.pg_attribute AS a
         WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
 ORDER BY c.relname
"""


def revisions() -> list[Script]:
    """Every revision, oldest first."""
    config = Config()
    config.set_main_option("script_location", "wakeful:migrations")
    return list(reversed(list(ScriptDirectory.from_config(config).walk_revisions())))


@contextmanager
def sqlalchemy_connection(dsn: str) -> Iterator[Connection]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


def migrate(dsn: str, revision: str) -> None:
    """Walk up to a revision, roles left alone."""
    with sqlalchemy_connection(dsn) as connection:
        command.upgrade(migration_config(connection), revision)


def migrate_down(dsn: str, revision: str) -> None:
    with sqlalchemy_connection(dsn) as connection:
        command.downgrade(migration_config(connection), revision)


def as_role(dsn: str, prefix: str, role: Role) -> str:
    """The same address with the startup option that takes a role."""
    return conninfo.make_conninfo(dsn, options=role_option(prefix, role))


def as_user(dsn: str, user: str) -> str:
    """The same address for another login (local connections are trusted)."""
    return conninfo.make_conninfo(dsn, user=user)


def set_tenant(connection: Direct, tenant: UUID | str) -> None:
    connection.execute("SELECT set_config('wakeful.tenant', %s, true)", [str(tenant)])


def insert_sample_rows(dsn: str, tenant: UUID) -> None:
    """One row of the tenant in every table."""
    with psycopg.connect(dsn) as connection:
        set_tenant(connection, tenant)
        connection.execute(SAMPLE_ROWS.encode())


def tenant_tables(dsn: str) -> list[tuple[str, str]]:
    """Every table whose rows belong to a tenant, with the column that says to which."""
    with psycopg.connect(dsn) as connection:
        return [(table, column) for table, column in connection.execute(TENANT_TABLES)]


def wait_until_blocked(database: Database) -> None:
    """Until PostgreSQL says that some other client of this database waits for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    turn = threading.Event()
    with psycopg.connect(database.admin_dsn, autocommit=True) as connection:
        for _ in range(2000):
            row = connection.execute(waiting, [database.name]).fetchone()
            if row and row[0]:
                return
            turn.wait(0.01)  # between two looks; the fact, not the time, ends the loop
    raise AssertionError("nothing ever waited for a lock")

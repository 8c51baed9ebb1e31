"""One server per session, one migrated template, one clone per test."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from wakeful.embedded import EmbeddedPostgres

# Roles belong to the whole server: the template's are provisioned once and every clone uses them.
ROLE_PREFIX = "wakeful_test_"
TEMPLATE = "wakeful_template"

# A backend outlives its closed or killed client by a moment.
CLOSE_SECONDS = 5.0

CLIENTS = """
    SELECT pid, usename, coalesce(application_name, ''), coalesce(state, ''), left(query, 120)
    FROM pg_stat_activity
    WHERE datname = %s AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Database:
    """A database of the test's own; `dsn` logs in as the superuser."""

    dsn: str
    role_prefix: str
    name: str
    server: EmbeddedPostgres = field(repr=False)

    @property
    def admin_dsn(self) -> str:
        """Another database of the same server, for looking at this one from outside."""
        return self.server.dsn()


def make_template(server: EmbeddedPostgres) -> None:
    from wakeful.persistence.schema import upgrade

    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    upgrade(server.dsn(TEMPLATE), role_prefix=ROLE_PREFIX)


@contextmanager
def database_from(server: EmbeddedPostgres, template: str, *, role_prefix: str) -> Iterator[Database]:
    """A database that fails its test when a connection to it is left open, above all inside a transaction."""
    name = f"test_{uuid4().hex[:16]}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
    try:
        yield Database(dsn=server.dsn(name), role_prefix=role_prefix, name=name, server=server)
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            left = clients_left(admin, name)
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    if left:
        lines = "\n".join(f"  {' | '.join(str(part) for part in row)}" for row in left)
        pytest.fail(f"{len(left)} connection(s) left open (pid | role | name | state | query):\n{lines}")


def clients_left(admin: psycopg.Connection[tuple[object, ...]], name: str) -> list[tuple[object, ...]]:
    deadline = time.monotonic() + CLOSE_SECONDS
    while left := admin.execute(CLIENTS, [name]).fetchall():
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)  # a backend's exit sends nothing that could be waited for
    return left


def drop_roles(server: EmbeddedPostgres, prefix: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        rows = admin.execute(
            "SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s) ORDER BY rolname", [prefix]
        ).fetchall()
        for (role,) in rows:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))

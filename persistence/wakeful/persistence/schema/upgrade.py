"""`upgrade`: bring the database to the head, one process at a time, then set up the roles."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, StaticPool, create_engine
from sqlalchemy.exc import DBAPIError

from wakeful.domain.errors import NotAllowed, SchemaError, Timeout, Unavailable
from wakeful.persistence.revision import EXPECTED_REVISION, current_revision
from wakeful.persistence.roles import Mode
from wakeful.persistence.schema.facts import Direct, Facts, connect, facts_of
from wakeful.persistence.schema.provisioning import provision

__all__ = ["LOCK_WAIT", "UpgradeResult", "migration_config", "upgrade"]

LOCK_WAIT = timedelta(minutes=10)
"""How long an upgrade waits for another one: longer than an index build over a large table usually takes."""

# "wakeful" in ASCII. Advisory locks belong to a database, so two databases upgrade side by side.
_LOCK_KEY = 0x77616B6566756C
_LOCK_POLL_SECONDS = 0.1
# A waiting ALTER TABLE makes every later reader of the table wait behind it, so it gives up soon and tries again.
_TABLE_LOCK = "2s"
_TABLE_LOCK_ATTEMPTS = 5

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """What an upgrade found and left; `from_revision` is None for a new database."""

    from_revision: str | None
    to_revision: str
    mode: Mode
    role_prefix: str
    roles_created: tuple[str, ...]
    for_administrator: tuple[str, ...]
    """Statements for somebody who may create and grant roles; empty when nothing is left to do."""


def upgrade(
    dsn: str, *, role_prefix: str | None = None, logins: Sequence[str] = (), lock_wait: timedelta = LOCK_WAIT
) -> UpgradeResult:
    """Migrate to the head, then create the roles and grant them to this login and `logins`.

    `dsn` must reach PostgreSQL itself, not a pooler. Upgrades of one database wait for each other; killed at
    any moment, the next one goes on. Done again, it changes nothing. Raises Unavailable, NotAllowed (with what
    to grant), SchemaError (the database is newer than this code), ConfigurationError (server or prefix cannot
    be used), and Timeout when another upgrade or a long query was in the way.
    """
    with connect(dsn) as connection, _one_at_a_time(connection, lock_wait):
        connection.execute(f"SET lock_timeout = '{_TABLE_LOCK}'")
        connection.execute("SET statement_timeout = 0")
        facts = facts_of(connection, role_prefix)
        before = _persistently(facts, lambda: _migrate(connection))
        # Again: the first upgrade has only now created what the facts are read from.
        facts = facts_of(connection, role_prefix)
        done = _persistently(facts, lambda: provision(connection, facts, logins))
    return UpgradeResult(before, EXPECTED_REVISION, done.mode, done.prefix, done.created, done.for_administrator)


def migration_config(connection: Connection) -> Config:
    """Alembic's configuration over the packaged revisions, working on the given connection."""
    config = Config()
    config.set_main_option("script_location", "wakeful:migrations")
    config.attributes["connection"] = connection
    return config


@contextmanager
def _one_at_a_time(connection: Direct, lock_wait: timedelta) -> Iterator[None]:
    # Tried and tried again, never waited for: a connection blocked in pg_advisory_lock holds a snapshot, for
    # which CREATE INDEX CONCURRENTLY on the other connection would wait for ever.
    deadline = time.monotonic() + lock_wait.total_seconds()
    while not _try_lock(connection):
        if time.monotonic() >= deadline:
            raise Timeout(
                f"another upgrade of this database did not end within {lock_wait.total_seconds():g} s: "
                "wait for it, or look for a session that holds the advisory lock in pg_locks"
            )
        time.sleep(_LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_KEY])


def _try_lock(connection: Direct) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK_KEY]).fetchone()
    return bool(row and row[0])


def _migrate(connection: Direct) -> str | None:
    """Walk to the head on this very connection; the revision there was before."""
    with _for_sqlalchemy(connection) as migrating:
        before = current_revision(migrating)
        migrating.rollback()
        command.upgrade(migration_config(migrating), "head")
    return before


def _persistently(facts: Facts, action: Callable[[], Done]) -> Done:
    """Do it, and again when a table was locked by others: every attempt goes on where the last one stopped."""
    for _ in range(_TABLE_LOCK_ATTEMPTS):
        try:
            with _understood(facts):
                return action()
        except _TableLocked as error:
            locked = error
    raise Timeout(
        f"a table stayed locked for {_TABLE_LOCK}, {_TABLE_LOCK_ATTEMPTS} times: end the long transactions "
        "(pg_stat_activity shows them) and upgrade again; finished revisions are kept"
    ) from locked


class _TableLocked(Exception):
    """A statement gave up after lock_timeout."""


@contextmanager
def _for_sqlalchemy(connection: Direct) -> Iterator[Connection]:
    """The same connection for Alembic, which wants to begin and end its transactions itself."""
    connection.autocommit = False
    engine = create_engine("postgresql+psycopg://", creator=lambda: connection, poolclass=StaticPool)
    try:
        with engine.connect() as migrating:
            yield migrating
    finally:
        if not connection.closed:
            connection.rollback()
            connection.autocommit = True


@contextmanager
def _understood(facts: Facts) -> Iterator[None]:
    """Tell the driver's errors apart by what the caller can do about them."""
    try:
        yield
    except CommandError as error:
        raise SchemaError(
            f"the database is at a revision this code does not know (it expects {EXPECTED_REVISION}): it was "
            f"upgraded by a newer release, use that one. {error}",
            current="unknown",
            expected=EXPECTED_REVISION,
        ) from error
    except (DBAPIError, psycopg.Error) as error:
        raise _translated(error, facts) from error


def _translated(error: DBAPIError | psycopg.Error, facts: Facts) -> Exception:
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, psycopg.errors.LockNotAvailable):
        return _TableLocked(str(cause))
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return NotAllowed(
            f"login {facts.login} may not change the schema of database {facts.database}: "
            f"{cause.diag.message_primary}. For a first upgrade it needs CREATE on the database, for a later one "
            "it must be the login that made the schema"
        )
    if isinstance(cause, psycopg.OperationalError):
        return Unavailable(f"the database went away during the upgrade, upgrade again: {str(cause).strip()}")
    return error

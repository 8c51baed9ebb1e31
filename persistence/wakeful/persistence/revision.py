"""The revision this code expects, and the refusal to work with any other.

The constant is not read from the migrations at run time: code and migrations ship together, so a
computed head would always agree with itself and never notice a database that was not upgraded.
"""

from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from wakeful.domain.errors import SchemaError

__all__ = ["EXPECTED_REVISION", "check_revision", "current_revision", "invalid_indexes"]

EXPECTED_REVISION = "b84e20d7c615"
"""Updated by the commit that adds a revision; a test compares it with the head of the graph."""

_UPGRADE = "run `wakeful db upgrade` with this release, then start again"

_TABLE_EXISTS = text("""
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE n.nspname = 'wakeful' AND c.relname = 'alembic_version')
""")

_INVALID_INDEXES = text("""
SELECT c.relname
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = 'wakeful' AND NOT i.indisvalid
 ORDER BY c.relname
""")


def check_revision(connection: Connection) -> None:
    """Returns when the database is at EXPECTED_REVISION with every index valid; changes nothing.

    Raises SchemaError, naming both revisions and what to run, in every other case. From an async
    connection: `await connection.run_sync(check_revision)`.
    """
    current = current_revision(connection)
    if current is None:
        raise SchemaError(
            f"this database holds no Wakeful schema (expected revision {EXPECTED_REVISION}): {_UPGRADE}",
            current=None,
            expected=EXPECTED_REVISION,
        )
    if current != EXPECTED_REVISION:
        raise SchemaError(
            f"the database is at revision {current}, this code expects {EXPECTED_REVISION}: {_UPGRADE} "
            "(when the database is newer, start the newer release instead)",
            current=current,
            expected=EXPECTED_REVISION,
        )
    if broken := invalid_indexes(connection):
        raise SchemaError(
            f"the database is at revision {current}, this code expects {EXPECTED_REVISION}, but these indexes "
            f"are invalid after an interrupted build: {', '.join(broken)}: drop them, then {_UPGRADE}",
            current=current,
            expected=EXPECTED_REVISION,
        )


def current_revision(connection: Connection) -> str | None:
    """The revision the database is at, None when it holds no Wakeful schema.

    Raises SchemaError when the version table cannot be read or does not hold exactly one revision.
    """
    if not connection.scalar(_TABLE_EXISTS):
        return None
    try:
        found = list(connection.scalars(text("SELECT version_num FROM wakeful.alembic_version")))
    except ProgrammingError as error:
        raise SchemaError(
            f"wakeful.alembic_version cannot be read by this role (expected revision {EXPECTED_REVISION}): "
            "connect as a login that `wakeful db upgrade` has granted the roles to",
            current="unreadable",
            expected=EXPECTED_REVISION,
        ) from error
    if len(found) > 1:
        raise SchemaError(
            f"the database claims {len(found)} revisions at once ({', '.join(sorted(found))}), this code expects "
            f"{EXPECTED_REVISION}: restore the version table from a backup",
            current=", ".join(sorted(found)),
            expected=EXPECTED_REVISION,
        )
    return found[0] if found else None


def invalid_indexes(connection: Connection) -> tuple[str, ...]:
    """Indexes that an interrupted concurrent build left behind: they cost writes and serve no reader."""
    return tuple(connection.scalars(_INVALID_INDEXES))

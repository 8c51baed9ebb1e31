"""Which roles this database is served with: asked once, before the first real connection."""

from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict

from wakeful.domain.errors import SchemaError, Unavailable
from wakeful.persistence.connecting import not_connected
from wakeful.persistence.revision import EXPECTED_REVISION
from wakeful.persistence.roles import Mode, checked_prefix, default_prefix

__all__ = ["Installation", "find_installation"]

CONNECT_TIMEOUT_SECONDS = 10

_RECORDED = b"SELECT mode, role_prefix FROM wakeful.installation"


@dataclass(frozen=True, slots=True)
class Installation:
    """`role_prefix` is None in single-role mode."""

    role_prefix: str | None

    @property
    def single_role(self) -> bool:
        return self.role_prefix is None


async def find_installation(dsn: str, role_prefix: str | None) -> Installation:
    """What `wakeful db upgrade` recorded; for a login that may not read that, the prefix given or the default.

    Raises Unavailable, ConfigurationError, SchemaError (there is no schema).
    """
    try:
        connection = await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, application_name="wakeful", connect_timeout=CONNECT_TIMEOUT_SECONDS
        )
    except psycopg.Error as error:
        raise not_connected(error) from error
    try:
        row = await (await connection.execute(_RECORDED)).fetchone()
        recorded: tuple[str, str] | None = (row[0], row[1]) if row else None
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        # Said here, because without a schema there are no roles to connect as and ask for the revision.
        raise SchemaError(
            f"this database holds no Wakeful schema (expected revision {EXPECTED_REVISION}): run `wakeful db upgrade` "
            "with this release, then start again",
            current=None,
            expected=EXPECTED_REVISION,
        ) from error
    except psycopg.errors.InsufficientPrivilege:
        recorded = None  # this login is granted the roles, and nothing itself
    except psycopg.OperationalError as error:
        raise Unavailable(f"the database ended the connection: {str(error).strip()}") from error
    finally:
        database = str(connection.info.dbname or conninfo_to_dict(dsn).get("dbname") or "")
        await connection.close()
    if recorded is not None and Mode(recorded[0]) is Mode.SINGLE_ROLE:
        return Installation(None)
    prefix = role_prefix or (recorded[1] if recorded else default_prefix(database))
    return Installation(checked_prefix(prefix))

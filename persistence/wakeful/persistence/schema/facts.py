"""What a connection finds out about its server, its database and its own rights before it changes anything."""

from dataclasses import dataclass
from typing import Any

import psycopg

from wakeful.domain.errors import ConfigurationError, Unavailable
from wakeful.persistence.roles import Mode, Role, checked_prefix, default_prefix, role_name

__all__ = ["Direct", "Facts", "connect", "facts_of", "may_become"]

Direct = psycopg.Connection[tuple[Any, ...]]
"""A connection to PostgreSQL itself, in autocommit."""

OLDEST_SERVER = 150000
SET_OPTION = 160000
"""From here on a membership says apart whether it inherits and whether it may be taken by SET ROLE."""

_FACTS = """
SELECT current_user, r.rolsuper, r.rolcreaterole, current_setting('server_version_num')::int,
       current_database(), current_setting('server_encoding')
  FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user
"""
_RECORDED = "SELECT mode, role_prefix FROM wakeful.installation"
_ROLES = """
SELECT rolname, rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE rolname = ANY(%s) ORDER BY rolname
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """`present` and `recorded` are as found; `missing` is what would have to be created."""

    login: str
    superuser: bool
    may_create_roles: bool
    server_version: int
    database: str
    prefix: str
    recorded: tuple[Mode, str] | None
    """The mode and prefix of the upgrade before, None before the first one (or when it cannot be read)."""
    present: tuple[str, ...]

    @property
    def roles(self) -> dict[Role, str]:
        return {role: role_name(self.prefix, role) for role in Role}

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.roles.values() if name not in self.present)


def connect(dsn: str) -> Direct:
    """A direct connection in autocommit, where unqualified names mean PostgreSQL's own.

    Raises Unavailable when it cannot be made, ConfigurationError when the server cannot hold the schema.
    """
    try:
        connection = psycopg.connect(dsn, autocommit=True, application_name="wakeful db")
    except psycopg.OperationalError as error:
        raise Unavailable(f"the database cannot be reached: {str(error).strip()}") from error
    connection.execute("SET search_path TO pg_catalog")
    return connection


def facts_of(connection: Direct, role_prefix: str | None) -> Facts:
    """The facts, with the prefix that holds: the one given, else the recorded one, else the default."""
    row = connection.execute(_FACTS).fetchone()
    if row is None:
        raise ConfigurationError("the login of this connection is not in pg_roles")
    login, superuser, creates, version, database, encoding = row
    if version < OLDEST_SERVER:
        raise ConfigurationError(f"PostgreSQL 15 or newer is needed, this server is {version // 10000}")
    if encoding != "UTF8":
        raise ConfigurationError(f"database {database} has encoding {encoding}: create one with encoding UTF8")
    recorded = _recorded(connection)
    prefix = checked_prefix(role_prefix or (recorded[1] if recorded else default_prefix(database)))
    return Facts(
        login=login,
        superuser=superuser,
        may_create_roles=superuser or creates,
        server_version=version,
        database=database,
        prefix=prefix,
        recorded=recorded,
        present=_present(connection, prefix),
    )


def may_become(connection: Direct, facts: Facts, login: str, role: str) -> bool:
    """Whether the login may take the role by SET ROLE or a startup option (a superuser always may)."""
    kind = "SET" if facts.server_version >= SET_OPTION else "MEMBER"
    row = connection.execute("SELECT pg_has_role(%s::name, %s::name, %s)", [login, role, kind]).fetchone()
    return bool(row and row[0])


def _recorded(connection: Direct) -> tuple[Mode, str] | None:
    try:
        row = connection.execute(_RECORDED).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.InsufficientPrivilege):
        return None
    return (Mode(row[0]), row[1]) if row else None


def _present(connection: Direct, prefix: str) -> tuple[str, ...]:
    names = [role_name(prefix, role) for role in Role]
    found = connection.execute(_ROLES, [names]).fetchall()
    if free := [name for name, above_policies in found if above_policies]:
        raise ConfigurationError(
            f"role {', '.join(free)} is a superuser or has BYPASSRLS, so row-level security would not bind it: "
            "take that away, or choose another role prefix"
        )
    return tuple(name for name, _ in found)

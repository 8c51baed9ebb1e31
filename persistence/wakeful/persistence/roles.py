"""The three PostgreSQL roles, and how a connection takes one.

Logins hold no rights themselves: they may become one of three roles, named `<prefix>_app`,
`<prefix>_worker` and `<prefix>_readonly`. Roles belong to the whole server, so the prefix contains the
database's name. A connection takes its role by a startup option and keeps it. Poolers drop that option
without a word, therefore every new connection asks `verify_role_statement` and does not serve when the
answer is false.
"""

import hashlib
from enum import StrEnum

from psycopg import sql

from wakeful.domain.errors import ConfigurationError

__all__ = [
    "SCOPE_SETTING",
    "TENANT_SETTING",
    "WORKER_SCOPE",
    "Mode",
    "Role",
    "checked_prefix",
    "default_prefix",
    "role_name",
    "role_option",
    "verify_role_statement",
    "wrong_role",
]

TENANT_SETTING = "wakeful.tenant"
"""Set transaction-locally to a tenant's id; unset or empty, a tenant table shows nothing."""
SCOPE_SETTING = "wakeful.scope"
WORKER_SCOPE = "worker"
"""The transaction-local value of `wakeful.scope` that stands for the worker role in single-role mode."""

_NAME_BYTES = 63
_LONGEST_SUFFIX = len("_readonly")


class Role(StrEnum):
    APP = "app"
    """Reads and writes one tenant's rows per transaction, content included."""
    WORKER = "worker"
    """Sees every tenant's queue: granted columns only, no content."""
    READONLY = "readonly"
    """For operators: reads one tenant's rows per transaction."""


class Mode(StrEnum):
    """How an installation separates rights; recorded in `wakeful.installation`."""

    ROLES = "roles"
    SINGLE_ROLE = "single_role"
    """One login does everything. Row-level security still separates tenants, but nothing separates the
    worker's view from content, and the login owns the tables."""


def default_prefix(database: str) -> str:
    """`wakeful_<database>`; a name too long for PostgreSQL is cut and ends in a hash of the whole."""
    prefix = f"wakeful_{database}"
    if len(prefix.encode()) <= _NAME_BYTES - _LONGEST_SUFFIX:
        return prefix
    digest = hashlib.sha256(database.encode()).hexdigest()[:8]
    room = _NAME_BYTES - _LONGEST_SUFFIX - len(digest) - 1
    return prefix.encode()[:room].decode(errors="ignore") + "_" + digest


def checked_prefix(prefix: str) -> str:
    """The prefix itself; ConfigurationError when PostgreSQL could not use it in a role name."""
    if not prefix or prefix.startswith("pg_") or "\0" in prefix:
        raise ConfigurationError(f"role prefix {prefix!r} cannot be used: it must not be empty or start with 'pg_'")
    if len(prefix.encode()) > _NAME_BYTES - _LONGEST_SUFFIX:
        raise ConfigurationError(
            f"role prefix {prefix!r} is too long: use at most {_NAME_BYTES - _LONGEST_SUFFIX} bytes"
        )
    return prefix


def role_name(prefix: str, role: Role) -> str:
    return f"{checked_prefix(prefix)}_{role.value}"


def role_option(prefix: str, role: Role) -> str:
    """The startup option that makes a connection start as the role, for `options=` of a connection string."""
    # The server splits its options at white space unless a backslash stands before it.
    name = role_name(prefix, role).replace("\\", "\\\\")
    return f"-c role={''.join(chr(92) + char if char.isspace() else char for char in name)}"


def verify_role_statement(prefix: str, role: Role) -> str:
    """A statement with one boolean: whether this connection really works as the role."""
    return sql.SQL("SELECT current_user = {}").format(sql.Literal(role_name(prefix, role))).as_string(None)


def wrong_role(prefix: str, role: Role) -> ConfigurationError:
    """What to raise when `verify_role_statement` answers false."""
    return ConfigurationError(
        f"this connection does not work as role {role_name(prefix, role)}: a pooler between here and PostgreSQL "
        "drops startup options. Give each role a login and an address of its own, or connect directly"
    )

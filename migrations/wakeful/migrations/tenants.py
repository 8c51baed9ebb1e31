"""How a data revision reaches the rows of every tenant.

Row-level security is forced, so it binds the owner who migrates as well: an UPDATE without a tenant
changes nothing and says nothing. A data revision therefore goes through the tenants one by one.
"""

from collections.abc import Iterator
from typing import Any, cast
from uuid import UUID

import psycopg
from alembic import op

__all__ = ["each_tenant"]

_LIST = "SELECT id FROM wakeful.tenants ORDER BY id"


def each_tenant() -> Iterator[tuple[UUID, "psycopg.Connection[tuple[Any, ...]]"]]:
    """Every tenant's id, with a connection inside a transaction of that tenant's own.

    The transaction commits when the loop goes on and rolls back when its body raises, so a revision that
    is killed half-way has done some tenants completely and the others not at all: its statements must
    give the same result when they run again. Use it inside `op.get_context().autocommit_block()`.
    """
    if op.get_context().as_sql:
        raise RuntimeError(
            "a data revision reads before it writes, so there is no script of it: upgrade a live database"
        )
    connection = cast("psycopg.Connection[tuple[Any, ...]]", op.get_bind().connection.driver_connection)
    for tenant in _tenants(connection):
        with connection.transaction():
            connection.execute("SELECT set_config('wakeful.tenant', %s, true)", [str(tenant)])
            yield tenant, connection


def _tenants(connection: "psycopg.Connection[tuple[Any, ...]]") -> list[UUID]:
    with connection.transaction():
        # The policy tenants_listed_by_owner opens for this setting, and for the owner alone.
        connection.execute("SELECT set_config('wakeful.scope', 'migrations', true)")
        return [row[0] for row in connection.execute(_LIST)]

"""What Alembic runs: one connection, a transaction per revision, the version table in schema `wakeful`."""

from typing import Any

from alembic import context
from sqlalchemy import Connection, create_engine, pool, text

from wakeful.persistence.tables import metadata

SCHEMA = "wakeful"
_SCHEMA_EXISTS = text("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'wakeful'")


def _in_schema(name: str | None, kind: str, _parents: Any) -> bool:
    """Whether autogenerate looks at it: what else lives in the database is none of our business."""
    return kind != "schema" or name == SCHEMA


def _options() -> dict[str, Any]:
    return {
        "target_metadata": metadata,
        "version_table_schema": SCHEMA,
        "include_schemas": True,
        "include_name": _in_schema,
        "compare_type": True,
        "compare_server_default": True,
        "transaction_per_migration": True,
    }


def _run(connection: Connection) -> None:
    # A login named "wakeful" has this schema first in its search path, and Alembic would then take it for the
    # unnamed one: every name here is spelled out, and means the same for every login.
    connection.execute(text("SET search_path TO pg_catalog"))
    connection.dialect.default_schema_name = "pg_catalog"
    # Looked up first: CREATE SCHEMA IF NOT EXISTS needs the right to create even when there is nothing to do.
    if connection.scalar(_SCHEMA_EXISTS) is None:
        connection.execute(text("CREATE SCHEMA wakeful"))
    connection.commit()
    context.configure(connection=connection, **_options())
    with context.begin_transaction():
        context.run_migrations()


def _run_at(dsn: str) -> None:
    engine = create_engine(dsn, poolclass=pool.NullPool)
    with engine.connect() as connection:
        _run(connection)


def _dsn() -> str:
    dsn = context.get_x_argument(as_dictionary=True).get("dsn")
    if not isinstance(dsn, str):
        raise SystemExit("say which database: alembic -x dsn=postgresql+psycopg://... (or use `wakeful db upgrade`)")
    return dsn


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **_options())
    with context.begin_transaction():
        context.execute("CREATE SCHEMA IF NOT EXISTS wakeful")
        context.run_migrations()
elif (given := context.config.attributes.get("connection")) is not None:
    _run(given)
else:
    _run_at(_dsn())

"""Building an index on a table that has rows, without keeping writers out.

A concurrent build cannot be undone by a rollback: interrupted, it leaves an invalid index that costs every
write and serves no reader, and `IF NOT EXISTS` would then call it done.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op
from sqlalchemy import text

__all__ = ["build_concurrently", "drop_concurrently"]

_CHECK = """
DO $$ BEGIN
    IF NOT (SELECT indisvalid FROM pg_catalog.pg_index WHERE indexrelid = 'wakeful.{name}'::regclass) THEN
        RAISE EXCEPTION 'index wakeful.{name} is invalid after its build: upgrade again';
    END IF;
END $$
"""


def build_concurrently(name: str, definition: str) -> None:
    """Build `name` as `CREATE INDEX CONCURRENTLY <name> <definition>`; what an interrupted build left goes first.

    Alone in a revision, inside `op.get_context().autocommit_block()`. Raises when the index is not valid at the end.
    """
    with _patiently():
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS wakeful.{name}")
        op.execute(f"CREATE INDEX CONCURRENTLY {name} {definition}")
        op.execute(_CHECK.format(name=name))


def drop_concurrently(name: str) -> None:
    """Drop it if it is there, inside `op.get_context().autocommit_block()`."""
    with _patiently():
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS wakeful.{name}")


@contextmanager
def _patiently() -> Iterator[None]:
    """Without the lock timeout of an upgrade: a concurrent build waits for old transactions and blocks nobody."""
    before = "0" if op.get_context().as_sql else op.get_bind().scalar(text("SELECT current_setting('lock_timeout')"))
    op.execute("SET lock_timeout = 0")
    yield
    op.execute(f"SET lock_timeout = '{before}'")

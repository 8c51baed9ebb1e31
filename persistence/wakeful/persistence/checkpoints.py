"""Checkpoints on PostgreSQL: written by the append function, read and lost by anybody of the tenant."""

from typing import Any

from psycopg.rows import dict_row

from wakeful.domain.checkpoints import Checkpoint, latest_of
from wakeful.domain.scopes import RunRef
from wakeful.persistence.connections import HotPool
from wakeful.persistence.errors import Translated
from wakeful.persistence.mappers.checkpoints import link_of

__all__ = ["CHAIN", "PostgresCheckpoints"]

_TENANT = b"SELECT set_config('wakeful.tenant', %s, true)"

# A chain never reaches behind the newest full one: a delta is written on the newest checkpoint only.
CHAIN = b"""
SELECT c.* FROM wakeful.run_checkpoints AS c
 WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s
   AND c.number >= coalesce((SELECT max(f.number) FROM wakeful.run_checkpoints AS f
                              WHERE f.tenant_id = %(tenant)s AND f.run_id = %(run)s AND f.kind = 'full'), 0)
 ORDER BY c.number
"""
# The run's row first: an append that removes older checkpoints holds it, and two of these in any order would deadlock.
_DROP = b"""
WITH run AS MATERIALIZED (
        SELECT r.tenant_id, r.id FROM wakeful.runs AS r
         WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s
           FOR NO KEY UPDATE)
DELETE FROM wakeful.run_checkpoints AS c
 USING run
 WHERE c.tenant_id = run.tenant_id AND c.run_id = run.id
   AND c.number IN (SELECT n.number FROM wakeful.run_checkpoints AS n
                     WHERE n.tenant_id = %(tenant)s AND n.run_id = %(run)s
                     ORDER BY n.number DESC LIMIT %(newest)s::bigint)
RETURNING c.number
"""


class PostgresCheckpoints:
    """See `wakeful.domain.ports.checkpoints`."""

    def __init__(self, pool: HotPool) -> None:
        self._pool = pool

    async def latest(self, run: RunRef) -> Checkpoint | None:
        rows = await self._rows(run, CHAIN, {"tenant": run.tenant_id, "run": run.run_id}, write=False)
        return latest_of(link_of(row) for row in rows)

    async def drop(self, run: RunRef, *, newest: int | None = None) -> int:
        limit = None if newest is None else str(newest)
        parameters = {"tenant": run.tenant_id, "run": run.run_id, "newest": limit}
        return len(await self._rows(run, _DROP, parameters, write=True))

    async def _rows(self, run: RunRef, statement: bytes, parameters: Any, *, write: bool) -> list[dict[str, Any]]:
        """One implicit transaction and one round trip: the tenant, then the statement."""
        with Translated(write=write):
            async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                async with connection.pipeline():
                    await connection.execute(_TENANT, (str(run.tenant_id),))
                    await cursor.execute(statement, parameters)
                return await cursor.fetchall()

"""Checkpoints on PostgreSQL: written under the lease, read and lost by anybody of the tenant."""

from typing import Any

from psycopg.rows import dict_row

from wakeful.domain.checkpoints import Checkpoint, NewCheckpoint
from wakeful.domain.errors import Fenced
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import RunRef
from wakeful.persistence.connections import HotPool
from wakeful.persistence.errors import Translated
from wakeful.persistence.mappers.appends import json_text
from wakeful.persistence.mappers.checkpoints import checkpoint_of

__all__ = ["PostgresCheckpoints"]

_TENANT = b"SELECT set_config('wakeful.tenant', %s, true)"

# The run's row is locked under the guard: a sub-select alone is none, a takeover could commit beside it.
_WRITE = b"""
WITH held AS MATERIALIZED (
        SELECT r.tenant_id, r.id, r.session_id, r.lease_epoch
          FROM wakeful.runs AS r
         WHERE r.tenant_id = %(tenant)s AND r.id = %(run)s AND r.session_id = %(session)s
           AND r.lease_owner = %(owner)s AND r.lease_epoch = %(epoch)s::integer AND r.status = 'RUNNING'
           FOR NO KEY UPDATE)
INSERT INTO wakeful.run_checkpoints (tenant_id, run_id, session_id, number, epoch, kind, trigger,
       last_event_sequence, state)
SELECT held.tenant_id, held.id, held.session_id,
       coalesce((SELECT max(c.number) FROM wakeful.run_checkpoints AS c
                  WHERE c.tenant_id = held.tenant_id AND c.run_id = held.id), 0) + 1,
       held.lease_epoch, 'full', %(trigger)s,
       coalesce(%(through)s::bigint, (SELECT s.next_event_sequence - 1 FROM wakeful.sessions AS s
                                       WHERE s.tenant_id = held.tenant_id AND s.id = held.session_id)),
       %(state)s
  FROM held
RETURNING number
"""
_LATEST = b"""
SELECT c.* FROM wakeful.run_checkpoints AS c
 WHERE c.tenant_id = %s AND c.run_id = %s ORDER BY c.number DESC LIMIT 1
"""
_DROP = b"""
DELETE FROM wakeful.run_checkpoints AS c
 WHERE c.tenant_id = %(tenant)s AND c.run_id = %(run)s
   AND c.number IN (SELECT n.number FROM wakeful.run_checkpoints AS n
                     WHERE n.tenant_id = %(tenant)s AND n.run_id = %(run)s
                     ORDER BY n.number DESC LIMIT %(newest)s::bigint)
RETURNING c.number
"""


class PostgresCheckpoints:
    """See `wakeful.domain.ports.checkpoints`. Every checkpoint written here is a full one."""

    def __init__(self, pool: HotPool) -> None:
        self._pool = pool

    async def write(self, lease: Lease, checkpoint: NewCheckpoint) -> int:
        through = checkpoint.last_event_sequence
        rows = await self._rows(
            lease.run,
            _WRITE,
            {
                "tenant": lease.run.tenant_id,
                "run": lease.run.run_id,
                "session": lease.run.session_id,
                "owner": lease.owner,
                "epoch": str(lease.epoch),
                "trigger": checkpoint.trigger,
                "through": None if through is None else str(through),
                "state": json_text(checkpoint.state),
            },
            write=True,
        )
        if not rows:
            raise Fenced(lease.run.run_id, lease.epoch)
        return int(rows[0]["number"])

    async def latest(self, run: RunRef) -> Checkpoint | None:
        rows = await self._rows(run, _LATEST, (run.tenant_id, run.run_id), write=False)
        return checkpoint_of(rows[0]) if rows else None

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

"""Loading what a holder needs: every statement in one snapshot and one round trip, as the app role."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncCursor
from psycopg.rows import dict_row

from wakeful.domain.checkpoints import latest_of
from wakeful.domain.errors import Fenced
from wakeful.domain.ports.run_queue import Execution
from wakeful.domain.runs import Lease
from wakeful.persistence.checkpoints import CHAIN
from wakeful.persistence.connections import Connection, HotPool
from wakeful.persistence.errors import Translated
from wakeful.persistence.history import ALL_HISTORY, history_parameters
from wakeful.persistence.mappers.checkpoints import link_of
from wakeful.persistence.mappers.events import event_of
from wakeful.persistence.mappers.invocations import invocation_of
from wakeful.persistence.mappers.runs import run_of

__all__ = ["load"]

# One snapshot for all: history is then never older than the calls, and the last sequence never newer than history.
_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TENANT = b"SELECT set_config('wakeful.tenant', %s, true)"
_RUN = b"""
SELECT r.*, s.metadata AS session_metadata, s.next_event_sequence - 1 AS last_sequence
  FROM wakeful.runs AS r
  JOIN wakeful.sessions AS s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
 WHERE r.tenant_id = %s AND r.id = %s AND r.session_id = %s AND r.lease_owner = %s AND r.lease_epoch = %s
   AND r.status = 'RUNNING'
"""
_CALLS = b"""
SELECT i.* FROM wakeful.tool_invocations AS i
 WHERE i.tenant_id = %s AND i.run_id = %s ORDER BY i.step, i.position, i.origin
"""
_COMMIT = b"COMMIT"

Rows = AsyncCursor[dict[str, Any]]


async def load(pool: HotPool, lease: Lease) -> Execution:
    """Raises Fenced when the lease is not current, Unavailable."""
    with Translated(write=False):
        async with pool.connection() as connection:
            cursors = await _read(connection, lease)
            runs, checkpoints, calls, history = [await cursor.fetchall() for cursor in cursors]
    if not runs:
        raise Fenced(lease.run.run_id, lease.epoch)
    return Execution(
        run=run_of(runs[0]),
        session_metadata=runs[0]["session_metadata"],
        checkpoint=latest_of(link_of(row) for row in checkpoints),
        invocations=[invocation_of(row) for row in calls],
        history=[event_of(row) for row in history],
        last_sequence=runs[0]["last_sequence"],
    )


async def _read(connection: Connection, lease: Lease) -> list[Rows]:
    run = lease.run
    statements: Sequence[tuple[bytes, Any]] = (
        (_RUN, (run.tenant_id, run.run_id, run.session_id, lease.owner, str(lease.epoch))),
        (CHAIN, {"tenant": run.tenant_id, "run": run.run_id}),
        (_CALLS, (run.tenant_id, run.run_id)),
        (ALL_HISTORY, history_parameters(run.session, after=-1)),
    )
    cursors = []
    async with connection.pipeline():
        await connection.execute(_BEGIN)
        await connection.execute(_TENANT, (str(run.tenant_id),))
        for statement, parameters in statements:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(statement, parameters)
            cursors.append(cursor)
        await connection.execute(_COMMIT)
    return cursors

"""Repair the activity of sessions that the memory's own forgetting had moved up in lists.

A session needs it when it is active and its activity time is that of a `memory.decayed` or `memory.retired` event of
actor memory without a run. It gets the time of the latest remaining event, or of its creation. A later time is another
write's own and stays, as do closed sessions and every event.
"""

from uuid import UUID

from alembic import op

from wakeful.migrations.tenants import each_tenant

revision = "b7e40d95c1a8"
down_revision = "3f6b21c0a9d4"
branch_labels = None
depends_on = None

data_revision = True

# Whose forgetting was activity after all is among the remaining, at the same time, so that session is left out.
# The lock judges a session again after waiting for its append: one that moved on meanwhile is left out.
REPAIR = """
WITH forgotten AS (
        SELECT DISTINCT session_id, created_at
          FROM wakeful.events
         WHERE tenant_id = %(tenant)s
           AND event_type IN ('memory.decayed', 'memory.retired')),
     affected AS MATERIALIZED (
        SELECT s.id, greatest(s.created_at, remaining.latest) AS activity
          FROM wakeful.sessions AS s
          JOIN forgotten AS f ON f.session_id = s.id AND f.created_at = s.updated_at
         CROSS JOIN LATERAL (
                SELECT max(e.created_at) AS latest
                  FROM wakeful.events AS e
                 WHERE e.tenant_id = s.tenant_id
                   AND e.session_id = s.id
                   AND NOT (e.event_type IN ('memory.decayed', 'memory.retired')
                            AND e.actor_type = 'memory' AND e.run_id IS NULL)) AS remaining
         WHERE s.tenant_id = %(tenant)s
           AND s.status = 'active'
           AND greatest(s.created_at, remaining.latest) < s.updated_at
         ORDER BY s.id
           FOR NO KEY UPDATE OF s),
     changed AS (
        UPDATE wakeful.sessions AS s
           SET updated_at = affected.activity
          FROM affected
         WHERE s.tenant_id = %(tenant)s AND s.id = affected.id
        RETURNING s.id)
SELECT (SELECT count(*) FROM affected), (SELECT count(*) FROM changed)
"""


def upgrade() -> None:
    # Non-transactional on purpose: one transaction per tenant, each the same when done again.
    with op.get_context().autocommit_block():
        for tenant, connection in each_tenant():
            affected, changed = connection.execute(REPAIR, {"tenant": tenant}).fetchone() or (None, None)
            _assert_complete(tenant, affected, changed)


def _assert_complete(tenant: UUID, affected: int | None, changed: int | None) -> None:
    if affected is None or affected != changed:
        raise RuntimeError(
            f"tenant {tenant}: {affected} sessions need their activity repaired, but {changed} were updated; "
            "nothing of this tenant was changed. Look for policies or triggers on wakeful.sessions, then upgrade again."
        )


def downgrade() -> None:
    raise NotImplementedError(
        "which sessions the memory had moved up before the repair is not kept: restore a backup instead of downgrading"
    )

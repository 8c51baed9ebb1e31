"""Backfill lease expirations from what the log says happened.

Counted per run: maintenance `run.requeued` with reason lease_expired, and maintenance `run.failed` with
code max_attempts_exceeded. Claims are no evidence: a claim follows every answer as well. Only the counter
changes, so no terminal run is reopened, and a queued continuation keeps its answers and becomes claimable.
"""

from uuid import UUID

from alembic import op

from wakeful.migrations.tenants import each_tenant

revision = "8436fb39eefa"
down_revision = "0a41e568d2cf"
branch_labels = None
depends_on = None

data_revision = True

BACKFILL = """
WITH crashed AS (
        SELECT run_id, count(*) AS crashes
          FROM wakeful.events
         WHERE tenant_id = %(tenant)s
           AND run_id IS NOT NULL
           AND actor_type = 'maintenance'
           AND ((event_type = 'run.requeued' AND payload ->> 'reason' = 'lease_expired')
             OR (event_type = 'run.failed' AND payload -> 'failure' ->> 'code' = 'max_attempts_exceeded'))
         GROUP BY run_id),
     changed AS (
        UPDATE wakeful.runs AS run
           SET lease_expirations = crashed.crashes
          FROM crashed
         WHERE run.tenant_id = %(tenant)s AND run.id = crashed.run_id
        RETURNING run.id)
SELECT (SELECT count(*) FROM crashed), (SELECT count(*) FROM changed)
"""


def upgrade() -> None:
    # Non-transactional on purpose: one transaction per tenant, each the same when done again.
    with op.get_context().autocommit_block():
        for tenant, connection in each_tenant():
            expected, changed = connection.execute(BACKFILL, {"tenant": tenant}).fetchone() or (None, None)
            _assert_complete(tenant, expected, changed)


def _assert_complete(tenant: UUID, expected: int | None, changed: int | None) -> None:
    if expected is None or expected != changed:
        raise RuntimeError(
            f"tenant {tenant}: the log names {expected} runs with expired leases, but {changed} were updated; "
            "nothing of this tenant was changed. Look for events whose run is missing, then upgrade again."
        )


def downgrade() -> None:
    raise NotImplementedError(
        "which leases expired before the backfill would be lost: restore a backup instead of downgrading"
    )

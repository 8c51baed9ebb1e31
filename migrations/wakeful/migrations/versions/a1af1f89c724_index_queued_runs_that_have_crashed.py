"""Index queued runs that have crashed, for the sweep that ends those whose crash allowance is used up.

Non-transactional: CREATE INDEX CONCURRENTLY stands alone here.
"""

from alembic import op

from wakeful.migrations.indexes import build_concurrently, drop_concurrently

revision = "a1af1f89c724"
down_revision = "8436fb39eefa"
branch_labels = None
depends_on = None

data_revision = False


def upgrade() -> None:
    with op.get_context().autocommit_block():
        build_concurrently(
            "ix_runs_crashed",
            "ON wakeful.runs (lease_expirations) WHERE status = 'QUEUED' AND lease_expirations > 0",
        )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        drop_concurrently("ix_runs_crashed")

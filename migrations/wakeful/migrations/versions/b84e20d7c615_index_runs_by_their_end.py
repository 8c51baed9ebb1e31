"""Index runs by their end, so that projections find whose session has just grown.

Non-transactional: CREATE INDEX CONCURRENTLY stands alone here.
"""

from alembic import op

from wakeful.migrations.indexes import build_concurrently, drop_concurrently

revision = "b84e20d7c615"
down_revision = "5d1c7a90b3e2"
branch_labels = None
depends_on = None

data_revision = False


def upgrade() -> None:
    with op.get_context().autocommit_block():
        build_concurrently("ix_runs_finished", "ON wakeful.runs (finished_at) WHERE finished_at IS NOT NULL")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        drop_concurrently("ix_runs_finished")

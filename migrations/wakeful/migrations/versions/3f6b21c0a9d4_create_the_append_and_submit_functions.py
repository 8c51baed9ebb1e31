"""Create the functions that append to the event log, read it, and queue a run.

One round trip each, tenant included. A function's statements see what was committed while it waited for
the session's lock; a data-modifying CTE would judge its guard on the snapshot from before the wait.
"""

from alembic import op

from wakeful.migrations.functions import load_function

revision = "3f6b21c0a9d4"
down_revision = "a1af1f89c724"
branch_labels = None
depends_on = None

data_revision = False

FUNCTIONS = ("append_v1", "repeated_v1", "read_events_v1", "submit_v1")


def upgrade() -> None:
    op.execute(load_function("append_v1.sql"))
    op.execute(load_function("submit_v1.sql"))
    for name in FUNCTIONS:
        # Functions are open to everybody from birth; `wakeful db upgrade` grants them to the app role.
        op.execute(f"REVOKE ALL ON FUNCTION wakeful.{name} FROM PUBLIC")


def downgrade() -> None:
    for name in FUNCTIONS:
        op.execute(f"DROP FUNCTION wakeful.{name}")

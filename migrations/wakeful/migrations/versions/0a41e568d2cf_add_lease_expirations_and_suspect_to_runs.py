"""Count lease expirations apart from claims, and mark runs suspected of killing their worker.

`attempts` counts every claim, so an answered question or an approval used up the crash allowance.
`lease_expirations` counts only executions that ended without a word.
"""

from alembic import op

revision = "0a41e568d2cf"
down_revision = "74661a8adfec"
branch_labels = None
depends_on = None

data_revision = False


def upgrade() -> None:
    # A constant default is stored in the catalogue: no row is rewritten, whatever the table's size.
    op.execute(
        """
        ALTER TABLE wakeful.runs
            ADD COLUMN lease_expirations integer NOT NULL DEFAULT 0,
            ADD COLUMN suspect boolean NOT NULL DEFAULT false
        """
    )
    # Validated in a second step, which lets writers through while it reads the table.
    op.execute(
        "ALTER TABLE wakeful.runs ADD CONSTRAINT ck_runs_lease_expirations CHECK (lease_expirations >= 0) NOT VALID"
    )
    op.execute("ALTER TABLE wakeful.runs VALIDATE CONSTRAINT ck_runs_lease_expirations")


def downgrade() -> None:
    op.execute("ALTER TABLE wakeful.runs DROP COLUMN suspect, DROP COLUMN lease_expirations")

"""${message}.

Say what the change is for. A revision changes structure or moves rows, never both; one with
CREATE INDEX CONCURRENTLY stands alone in an autocommit block.
"""

from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

data_revision = False
"""Whether it moves rows: then downgrade() raises NotImplementedError with what would be lost."""


def upgrade() -> None:
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade() -> None:
    ${downgrades if downgrades else "raise NotImplementedError"}

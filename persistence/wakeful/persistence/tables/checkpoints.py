"""Checkpoints: disposable shortcuts into a run."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, SCHEMA, Base

__all__ = ["RunCheckpointRow"]


class RunCheckpointRow(Base):
    """A full one stands alone; a delta builds on `base_number`. The key serves walking a chain back."""

    __tablename__ = "run_checkpoints"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "run_id"],
            [f"{SCHEMA}.runs.tenant_id", f"{SCHEMA}.runs.id"],
            name="fk_run_checkpoints_run_id_runs",
            ondelete="CASCADE",
        ),
        CheckConstraint("kind IN ('full', 'delta')", name="kind"),
        CheckConstraint("(kind = 'full') = (base_number IS NULL)", name="base"),
        CheckConstraint("base_number < number", name="chain"),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    session_id: Mapped[UUID]
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int]
    kind: Mapped[str]
    base_number: Mapped[int | None]
    trigger: Mapped[str]
    last_event_sequence: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

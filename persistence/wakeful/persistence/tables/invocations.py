"""Tool invocations: one row per call, found by its place in the run."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, SCHEMA, Base

__all__ = ["ToolInvocationRow"]

_AWAITING = "'AWAITING_APPROVAL', 'AWAITING_INPUT', 'AWAITING_CHILD'"


class ToolInvocationRow(Base):
    """`epoch` is the lease epoch under which it was started: an older one met by a holder is a crash's trace."""

    __tablename__ = "tool_invocations"
    __table_args__ = (
        # A proposed call has one row, however often its turn is recovered.
        UniqueConstraint("tenant_id", "run_id", "origin", "step", "position", name="position"),
        ForeignKeyConstraint(
            ["tenant_id", "run_id"],
            [f"{SCHEMA}.runs.tenant_id", f"{SCHEMA}.runs.id"],
            name="fk_tool_invocations_run_id_runs",
            ondelete="CASCADE",
        ),
        CheckConstraint(
            f"status IN ('REQUESTED', {_AWAITING}, 'RUNNING', "
            "'COMPLETED', 'FAILED', 'REFUSED', 'DENIED', 'CANCELLED', 'UNCERTAIN')",
            name="status",
        ),
        CheckConstraint(
            "idempotency_class IN ('read_only', 'idempotent', 'conditionally_idempotent', 'non_idempotent')",
            name="idempotency_class",
        ),
        CheckConstraint("step >= 0 AND position >= 0 AND attempt >= 0", name="counters"),
        CheckConstraint("status <> 'RUNNING' OR epoch IS NOT NULL", name="epoch"),
        # Recovery, waiting and ending a run: its calls without a result.
        Index(
            "ix_tool_invocations_open",
            "tenant_id",
            "run_id",
            postgresql_where=text(f"status IN ('REQUESTED', {_AWAITING}, 'RUNNING')"),
        ),
        # Expiry sweep: questions and approvals nobody answered in time.
        Index(
            "ix_tool_invocations_expiry",
            "expires_at",
            postgresql_where=text(f"expires_at IS NOT NULL AND status IN ({_AWAITING})"),
        ),
        # Delivery of a child's result to the call that started it.
        Index(
            "ix_tool_invocations_child",
            "tenant_id",
            "child_run_id",
            postgresql_where=text("child_run_id IS NOT NULL"),
        ),
        {"postgresql_with": {"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.05}},
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    session_id: Mapped[UUID]
    run_id: Mapped[UUID]
    origin: Mapped[str] = mapped_column(server_default=text("'model'"))
    step: Mapped[int]
    position: Mapped[int]
    tool: Mapped[str]
    arguments_hash: Mapped[str]
    provider_call_id: Mapped[str] = mapped_column(server_default=text("''"))
    idempotency_class: Mapped[str]
    idempotency_key: Mapped[str]
    status: Mapped[str]
    epoch: Mapped[int | None]
    attempt: Mapped[int] = mapped_column(server_default=text("0"))
    approved_by: Mapped[str | None]
    child_run_id: Mapped[UUID | None]
    child_session_id: Mapped[UUID | None]
    context_updates: Mapped[dict[str, Any] | None]
    expires_at: Mapped[datetime | None]
    resolved_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)

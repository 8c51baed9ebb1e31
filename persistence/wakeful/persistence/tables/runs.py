"""Runs: the queue, the leases and the counters."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Computed,
    ForeignKeyConstraint,
    Index,
    SmallInteger,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import EMPTY_ARRAY, EMPTY_OBJECT, NOW, SCHEMA, Base

__all__ = ["RunRow"]

_ACTIVE = "status IN ('QUEUED', 'RUNNING', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD')"
_UNLEASED = "status IN ('QUEUED', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD')"
_TERMINAL = "status IN ('COMPLETED', 'FAILED', 'CANCELLED')"
_ZERO = text("0")


class RunRow(Base):
    """`attempts` counts claims, `lease_expirations` crashes; only the second uses up the allowance."""

    __tablename__ = "runs"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "session_id"],
            [f"{SCHEMA}.sessions.tenant_id", f"{SCHEMA}.sessions.id"],
            name="fk_runs_session_id_sessions",
            ondelete="CASCADE",
        ),
        CheckConstraint(
            "status IN ('QUEUED', 'RUNNING', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD', "
            "'COMPLETED', 'FAILED', 'CANCELLED')",
            name="status",
        ),
        CheckConstraint("priority IN (0, 10, 20)", name="priority"),
        CheckConstraint(
            "step >= 0 AND tool_call_count >= 0 AND token_count >= 0 AND attempts >= 0 AND lease_epoch >= 0",
            name="counters",
        ),
        CheckConstraint("lease_expirations >= 0", name="lease_expirations"),
        CheckConstraint(
            "status <> 'RUNNING' OR (lease_owner IS NOT NULL AND lease_expires_at IS NOT NULL)", name="lease"
        ),
        CheckConstraint(
            "num_nonnulls(parent_run_id, parent_session_id) IN (0, 2) "
            "AND (parent_invocation_id IS NULL OR parent_run_id IS NOT NULL)",
            name="parent",
        ),
        CheckConstraint("jsonb_typeof(attempt_failures) = 'array'", name="attempt_failures"),
        # Submit: one active run per session.
        Index("uq_runs_active_in_session", "tenant_id", "session_id", unique=True, postgresql_where=text(_ACTIVE)),
        # Claim: probed per class and served agent, oldest due first.
        Index("ix_runs_queued", "priority", "agent", "due_at", postgresql_where=text("status = 'QUEUED'")),
        # Lease sweep: the expired ones.
        Index("ix_runs_lease_expiry", "lease_expires_at", postgresql_where=text("status = 'RUNNING'")),
        # Sweep of used-up allowances: queued runs that have crashed, few among many.
        Index(
            "ix_runs_crashed",
            "lease_expirations",
            postgresql_where=text("status = 'QUEUED' AND lease_expirations > 0"),
        ),
        # Heartbeat: every lease of one process incarnation.
        Index("ix_runs_lease_owner", "lease_owner", postgresql_where=text("status = 'RUNNING'")),
        # Deadline sweep; a holder watches its own deadline.
        Index(
            "ix_runs_deadline",
            "deadline_at",
            postgresql_where=text(f"deadline_at IS NOT NULL AND {_UNLEASED}"),
        ),
        # Delivery sweep: ended children whose parent has no result yet.
        Index(
            "ix_runs_undelivered",
            "finished_at",
            postgresql_where=text(f"parent_run_id IS NOT NULL AND result_delivered_at IS NULL AND {_TERMINAL}"),
        ),
        # Projections: whose session has just grown. Written once in a run's life.
        Index("ix_runs_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
        # Cancel and deletion: the children of a run.
        Index(
            "ix_runs_parent",
            "tenant_id",
            "parent_run_id",
            postgresql_where=text("parent_run_id IS NOT NULL"),
        ),
        # A principal's runs, newest first.
        Index("ix_runs_by_principal", "tenant_id", "principal_id", text("created_at DESC"), "id"),
        # A session's runs in order; also what deleting a session cascades along.
        Index("ix_runs_by_session", "tenant_id", "session_id", "created_at"),
        # Claims, heartbeats and steps rewrite rows all day, and the queue must not wait for vacuum.
        {
            "postgresql_with": {
                "fillfactor": 80,
                "autovacuum_vacuum_scale_factor": 0.02,
                "autovacuum_analyze_scale_factor": 0.02,
                "autovacuum_vacuum_cost_delay": 0,
            }
        },
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    session_id: Mapped[UUID]
    principal_id: Mapped[UUID]
    agent: Mapped[str]
    agent_version: Mapped[int]
    status: Mapped[str]
    priority: Mapped[int] = mapped_column(SmallInteger, server_default=_ZERO)
    scheduled_for: Mapped[datetime | None]
    due_at: Mapped[datetime | None] = mapped_column(Computed("coalesce(scheduled_for, created_at)", persisted=True))
    budget: Mapped[dict[str, Any]] = mapped_column(server_default=EMPTY_OBJECT)
    deadline_at: Mapped[datetime | None]
    step: Mapped[int] = mapped_column(server_default=_ZERO)
    tool_call_count: Mapped[int] = mapped_column(server_default=_ZERO)
    token_count: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    attempts: Mapped[int] = mapped_column(server_default=_ZERO)
    lease_owner: Mapped[UUID | None]
    lease_epoch: Mapped[int] = mapped_column(server_default=_ZERO)
    lease_expires_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    export_consent: Mapped[bool] = mapped_column(server_default=false())
    parent_run_id: Mapped[UUID | None]
    parent_session_id: Mapped[UUID | None]
    parent_invocation_id: Mapped[UUID | None]
    result_delivered_at: Mapped[datetime | None]
    failure: Mapped[dict[str, Any] | None]
    attempt_failures: Mapped[list[Any]] = mapped_column(server_default=EMPTY_ARRAY)
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", server_default=EMPTY_OBJECT)
    trace_id: Mapped[str | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
    lease_expirations: Mapped[int] = mapped_column(server_default=_ZERO)
    suspect: Mapped[bool] = mapped_column(server_default=false())

"""Consent to export, and the exports made under it."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, SCHEMA, Base

__all__ = ["ExportConsentRow", "TrajectoryExportRow"]


class ExportConsentRow(Base):
    """A principal's consent; a new grant revives nothing that an earlier withdrawal expired."""

    __tablename__ = "export_consent"

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    principal_id: Mapped[UUID] = mapped_column(primary_key=True)
    granted_at: Mapped[datetime]
    withdrawn_at: Mapped[datetime | None]


class TrajectoryExportRow(Base):
    """At most one per run, which is what makes exporting idempotent; the body is an artifact."""

    __tablename__ = "trajectory_exports"
    __table_args__ = (
        UniqueConstraint("tenant_id", "run_id", name="run_id"),
        ForeignKeyConstraint(
            ["tenant_id", "run_id"],
            [f"{SCHEMA}.runs.tenant_id", f"{SCHEMA}.runs.id"],
            name="fk_trajectory_exports_run_id_runs",
            ondelete="CASCADE",
        ),
        # Withdrawal: every export of one principal.
        Index("ix_trajectory_exports_by_principal", "tenant_id", "principal_id"),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    export_id: Mapped[UUID] = mapped_column(primary_key=True)
    principal_id: Mapped[UUID]
    run_id: Mapped[UUID]
    artifact_id: Mapped[UUID]
    builder_version: Mapped[str]
    ruleset_version: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

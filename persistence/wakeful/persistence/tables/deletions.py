"""What a deleted session leaves: a tombstone without content, and bytes still to be removed."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, SCHEMA, Base

__all__ = ["SessionDeletionArtifactRow", "SessionDeletionRow"]


class SessionDeletionRow(Base):
    """Makes a repeated delete answer alike, and keeps the id from being used again."""

    __tablename__ = "session_deletions"
    __table_args__ = (
        # A principal's deletions in order.
        Index("ix_session_deletions_by_principal", "tenant_id", "principal_id", "deleted_at"),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    principal_id: Mapped[UUID]
    deleted_at: Mapped[datetime] = mapped_column(server_default=NOW)


class SessionDeletionArtifactRow(Base):
    """An outbox: the row leaves only after the artifact's bytes are gone."""

    __tablename__ = "session_deletion_artifacts"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "session_id"],
            [f"{SCHEMA}.session_deletions.tenant_id", f"{SCHEMA}.session_deletions.session_id"],
            name="fk_session_deletion_artifacts_session_id_session_deletions",
            ondelete="CASCADE",
        ),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    artifact_id: Mapped[UUID] = mapped_column(primary_key=True)
    artifact: Mapped[dict[str, Any]]

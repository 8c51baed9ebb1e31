"""Artifacts: bytes kept outside the log, referenced from it."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, SCHEMA, Base

__all__ = ["ArtifactRow"]


class ArtifactRow(Base):
    """Bytes are never shared between artifacts: deleting one cannot take another's."""

    __tablename__ = "artifacts"
    __table_args__ = (
        # The row goes with its session; the deletion outbox keeps the reference until the bytes are gone.
        ForeignKeyConstraint(
            ["tenant_id", "session_id"],
            [f"{SCHEMA}.sessions.tenant_id", f"{SCHEMA}.sessions.id"],
            name="fk_artifacts_session_id_sessions",
            ondelete="CASCADE",
        ),
        CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
        CheckConstraint("size_bytes >= 0", name="size_bytes"),
        # Deletion: what a session's artifacts are.
        Index("ix_artifacts_session", "tenant_id", "session_id"),
        # Expiry sweep.
        Index("ix_artifacts_expiry", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    session_id: Mapped[UUID]
    run_id: Mapped[UUID | None]
    origin: Mapped[str]
    trust: Mapped[str]
    media_type: Mapped[str]
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    storage_key: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime | None]

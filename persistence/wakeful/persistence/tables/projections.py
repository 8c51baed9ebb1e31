"""How far each projection has read, and which events it has derived."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, SCHEMA, Base

__all__ = ["DerivedEventKeyRow", "ProjectionWatermarkRow"]


class ProjectionWatermarkRow(Base):
    """Written in the transaction that writes the projection's state. `scope` is a session id, or ''."""

    __tablename__ = "projection_watermarks"
    __table_args__ = (
        CheckConstraint("watermark_seq >= 0", name="watermark_seq"),
        {"postgresql_with": {"fillfactor": 80}},
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    projection_name: Mapped[str] = mapped_column(primary_key=True)
    scope: Mapped[str] = mapped_column(primary_key=True, server_default=text("''"))
    watermark_seq: Mapped[int] = mapped_column(BigInteger)
    builder_version: Mapped[str]
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


class DerivedEventKeyRow(Base):
    """A derived event is appended only when its key is absent, so a rebuild appends nothing new."""

    __tablename__ = "derived_event_keys"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "session_id"],
            [f"{SCHEMA}.sessions.tenant_id", f"{SCHEMA}.sessions.id"],
            name="fk_derived_event_keys_session_id_sessions",
            ondelete="CASCADE",
        ),
        # Deleting a session cascades along it.
        Index("ix_derived_event_keys_session", "tenant_id", "session_id"),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    derivation_key: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[UUID]
    event_id: Mapped[UUID]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

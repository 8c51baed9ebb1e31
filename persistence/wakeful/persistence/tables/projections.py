"""How far each projection has read, what it made of that, and which events it has derived."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, SCHEMA, Base

__all__ = ["DerivedEventKeyRow", "ProjectionDocumentRow", "ProjectionStateRow", "ProjectionWatermarkRow"]


class ProjectionWatermarkRow(Base):
    """Written in the transaction that writes the projection's state. `scope` is a session."""

    __tablename__ = "projection_watermarks"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "scope"],
            [f"{SCHEMA}.sessions.tenant_id", f"{SCHEMA}.sessions.id"],
            name="fk_projection_watermarks_scope_sessions",
            ondelete="CASCADE",
        ),
        CheckConstraint("watermark_seq >= 0", name="watermark_seq"),
        {"postgresql_with": {"fillfactor": 80}},
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    scope: Mapped[UUID] = mapped_column(primary_key=True)
    projection_name: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, server_default=text("0"))
    watermark_seq: Mapped[int] = mapped_column(BigInteger)
    builder_version: Mapped[int]
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ProjectionStateRow(Base):
    """A generation of a state; `scope` is a session or a principal.

    Without any row a session's state is served in generation 0. A principal's always has one, whose revision is
    compared and raised by every transaction that changes it. `stopped_*` say why it does not move.
    """

    __tablename__ = "projection_states"
    __table_args__ = (
        Index(
            "uq_projection_states_serving",
            "tenant_id",
            "scope",
            "projection_name",
            unique=True,
            postgresql_where=text("serving"),
        ),
        {"postgresql_with": {"fillfactor": 80}},
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    scope: Mapped[UUID] = mapped_column(primary_key=True)
    projection_name: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    serving: Mapped[bool]
    revision: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    builder_version: Mapped[int | None]
    last_created_at: Mapped[datetime | None]
    last_session_id: Mapped[UUID | None]
    last_sequence: Mapped[int | None] = mapped_column(BigInteger)
    stopped_session_id: Mapped[UUID | None]
    stopped_sequence: Mapped[int | None] = mapped_column(BigInteger)
    stopped_reason: Mapped[str | None]
    stopped_at: Mapped[datetime | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ProjectionDocumentRow(Base):
    """A part of a generation's state."""

    __tablename__ = "projection_documents"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "session_id"],
            [f"{SCHEMA}.sessions.tenant_id", f"{SCHEMA}.sessions.id"],
            name="fk_projection_documents_session_id_sessions",
            ondelete="CASCADE",
        ),
        # A range of a session's state; deleting a session cascades along it too.
        Index(
            "ix_projection_documents_session", "tenant_id", "session_id", "projection_name", "generation", "position"
        ),
        {"postgresql_with": {"fillfactor": 90}},
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    scope: Mapped[UUID] = mapped_column(primary_key=True)
    projection_name: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(BigInteger)
    session_id: Mapped[UUID]
    body: Mapped[Any] = mapped_column(JSONB)


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

"""Sessions: who owns a log, and the counter that orders it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import EMPTY_OBJECT, NOW, SCHEMA, Base

__all__ = ["SessionRow"]


class SessionRow(Base):
    """Its row lock orders everything in the session: the append takes it first."""

    __tablename__ = "sessions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], [f"{SCHEMA}.tenants.id"]),
        CheckConstraint("status IN ('active', 'closed')", name="status"),
        CheckConstraint("jsonb_typeof(metadata) = 'object'", name="metadata"),
        CheckConstraint("next_event_sequence >= 1", name="next_event_sequence"),
        # Without updated_at, though lists are sorted by it: every append writes it, and a column in no index is
        # updated in place.
        Index("ix_sessions_by_principal", "tenant_id", "principal_id", "id"),
        # The one system session of a tenant for a purpose (maintenance, rebuilds).
        Index(
            "uq_sessions_purpose",
            "tenant_id",
            "purpose",
            unique=True,
            postgresql_where=text("purpose IS NOT NULL"),
        ),
        # Every append updates the counter, which no index holds: room for it to stay on its page.
        {"postgresql_with": {"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.05}},
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    principal_id: Mapped[UUID]
    agent: Mapped[str]
    title: Mapped[str | None]
    purpose: Mapped[str | None]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", server_default=EMPTY_OBJECT)
    status: Mapped[str] = mapped_column(server_default=text("'active'"))
    next_event_sequence: Mapped[int] = mapped_column(BigInteger, server_default=text("1"))
    last_event_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
    closed_at: Mapped[datetime | None]

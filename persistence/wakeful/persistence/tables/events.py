"""The event log."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, SmallInteger, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import SCHEMA, Base

__all__ = ["EventRow"]


class EventRow(Base):
    """Immutable: a trigger refuses UPDATE, TRUNCATE and every DELETE but a deleted session's cascade.

    The primary key serves every reader (`session_id = ? AND sequence > ?`); allocation under the session's
    lock makes commit order and sequence order the same, so there is no index in commit order. A run's
    events have no foreign key: the session they belong to is their owner.
    """

    __tablename__ = "events"
    __table_args__ = (
        # Redoing an append whose answer was lost meets this one.
        UniqueConstraint("tenant_id", "session_id", "event_id", name="event_id"),
        ForeignKeyConstraint(
            ["tenant_id", "session_id"],
            [f"{SCHEMA}.sessions.tenant_id", f"{SCHEMA}.sessions.id"],
            name="fk_events_session_id_sessions",
            ondelete="CASCADE",
        ),
        CheckConstraint("sequence >= 1", name="sequence"),
        CheckConstraint("payload_schema_version >= 1", name="payload_schema_version"),
        CheckConstraint("jsonb_typeof(payload) = 'object'", name="payload_object"),
        # A backstop: larger contents become artifacts long before.
        CheckConstraint("pg_column_size(payload) <= 1048576", name="payload_bytes"),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    session_id: Mapped[UUID] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    event_id: Mapped[UUID]
    run_id: Mapped[UUID | None]
    event_type: Mapped[str]
    payload_schema_version: Mapped[int] = mapped_column(SmallInteger)
    actor_type: Mapped[str]
    actor_id: Mapped[str | None]
    payload: Mapped[dict[str, Any]]
    trace_id: Mapped[str | None]
    created_at: Mapped[datetime]

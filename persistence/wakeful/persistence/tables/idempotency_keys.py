"""Submit keys: what makes a repeated submit return the first one's run."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, Base

__all__ = ["IdempotencyKeyRow"]


class IdempotencyKeyRow(Base):
    """A key belongs to a principal: another tenant's or principal's equal key is another key."""

    __tablename__ = "idempotency_keys"
    # Retention sweep: keys past their time.
    __table_args__ = (Index("ix_idempotency_keys_expiry", "expires_at"),)

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    principal_id: Mapped[UUID] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_hash: Mapped[str]
    run_id: Mapped[UUID]
    session_id: Mapped[UUID]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime]

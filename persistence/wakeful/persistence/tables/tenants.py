"""Who owns data, and what holds for all of it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import EMPTY_ARRAY, NOW, Base

__all__ = ["TenantRow"]


class TenantRow(Base):
    """The one tenant table keyed by `id`; its row is visible to the tenant itself."""

    __tablename__ = "tenants"
    __table_args__ = (CheckConstraint("jsonb_typeof(redaction_patterns) = 'array'", name="redaction_patterns"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    export_enabled: Mapped[bool] = mapped_column(server_default=false())
    redaction_patterns: Mapped[list[Any]] = mapped_column(server_default=EMPTY_ARRAY)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

"""Facts about the installation itself; no tenant owns them."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from wakeful.persistence.tables.base import NOW, Base

__all__ = ["InstallationRow", "SweepTickRow"]


class InstallationRow(Base):
    """How `wakeful db upgrade` set up the roles: one row, read by `doctor` and by every upgrade after it."""

    __tablename__ = "installation"
    __table_args__ = (
        CheckConstraint("id = 1", name="one_row"),
        CheckConstraint("mode IN ('roles', 'single_role')", name="mode"),
    )

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False, server_default=text("1"))
    mode: Mapped[str]
    role_prefix: Mapped[str]
    installed_at: Mapped[datetime] = mapped_column(server_default=NOW)


class SweepTickRow(Base):
    """When a sweep last ran anywhere. After a gap, leases get one full term before they are swept."""

    __tablename__ = "sweep_ticks"
    # Updated once a second for ever: half-empty pages keep every update in place.
    __table_args__ = ({"postgresql_with": {"fillfactor": 50}},)

    sweep: Mapped[str] = mapped_column(primary_key=True)
    ticked_at: Mapped[datetime]
    owner: Mapped[UUID]

"""Whose data: every port method that touches user-owned data takes one of these, so it cannot be left out."""

from dataclasses import dataclass
from uuid import UUID

__all__ = ["RunRef", "Scope", "SessionRef"]


@dataclass(frozen=True, slots=True)
class Scope:
    """An owner: rows of another tenant or principal do not exist for its holder."""

    tenant_id: UUID
    principal_id: UUID


@dataclass(frozen=True, slots=True)
class SessionRef:
    tenant_id: UUID
    session_id: UUID


@dataclass(frozen=True, slots=True)
class RunRef:
    tenant_id: UUID
    session_id: UUID
    run_id: UUID

    @property
    def session(self) -> SessionRef:
        return SessionRef(self.tenant_id, self.session_id)

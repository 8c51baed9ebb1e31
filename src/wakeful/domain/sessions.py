"""Sessions: one ordered event log each."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from wakeful.domain.ids import new_id
from wakeful.domain.scopes import Scope, SessionRef

__all__ = ["NewSession", "Session"]


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to open; the id is the caller's to choose, so opening it again finds it."""

    scope: Scope
    agent: str
    title: str | None = None
    purpose: str | None = None
    """Set for system sessions only: one per tenant and purpose."""
    metadata: dict[str, Any] = field(default_factory=dict)
    session_id: UUID = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Session:
    """A session as stored. `updated_at` is the time of its latest activity and never moves back."""

    scope: Scope
    session_id: UUID
    agent: str
    title: str | None
    purpose: str | None
    metadata: dict[str, Any]
    status: str
    last_sequence: int
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None

    @property
    def ref(self) -> SessionRef:
        return SessionRef(self.scope.tenant_id, self.session_id)

    @property
    def closed(self) -> bool:
        return self.status == "closed"

"""Sessions: row to domain, domain to row. A row is a mapping by column name."""

from collections.abc import Mapping
from typing import Any

from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession, Session

__all__ = ["session_of", "session_values"]


def session_of(row: Mapping[str, Any]) -> Session:
    return Session(
        scope=Scope(row["tenant_id"], row["principal_id"]),
        session_id=row["id"],
        agent=row["agent"],
        title=row["title"],
        purpose=row["purpose"],
        metadata=row["metadata"],
        status=row["status"],
        last_sequence=row["next_event_sequence"] - 1,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        closed_at=row["closed_at"],
    )


def session_values(new: NewSession) -> dict[str, Any]:
    return {
        "tenant_id": new.scope.tenant_id,
        "id": new.session_id,
        "principal_id": new.scope.principal_id,
        "agent": new.agent,
        "title": new.title,
        "purpose": new.purpose,
        "metadata": new.metadata,
    }

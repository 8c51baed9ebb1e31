"""Events: row to domain (in today's shape), domain to row. A row is a mapping by column name."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from wakeful.domain.events import Actor, Event, NewEvent, decode

__all__ = ["event_of", "event_values"]


def event_of(row: Mapping[str, Any]) -> Event:
    """Raises UnknownEventVersion for an event that newer code wrote."""
    version = row["payload_schema_version"]
    return Event(
        tenant_id=row["tenant_id"],
        session_id=row["session_id"],
        sequence=row["sequence"],
        event_id=row["event_id"],
        run_id=row["run_id"],
        version=version,
        actor=Actor(row["actor_type"], row["actor_id"]),
        payload=decode(row["event_type"], version, row["payload"], event=row["event_id"]),
        trace_id=row["trace_id"],
        created_at=row["created_at"],
    )


def event_values(event: NewEvent, tenant_id: UUID, session_id: UUID, sequence: int, at: datetime) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "session_id": session_id,
        "sequence": sequence,
        "event_id": event.event_id,
        "run_id": event.run_id,
        "event_type": event.type,
        "payload_schema_version": event.payload.VERSION,
        "actor_type": event.actor.type,
        "actor_id": event.actor.id,
        "payload": event.payload.model_dump(mode="json"),
        "trace_id": event.trace_id,
        "created_at": at,
    }

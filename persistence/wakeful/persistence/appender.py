"""Appending without a lease, inside a unit of work: the same rules as the append function, in three statements.

The session's row is locked already (`SessionRepository.lock`), so allocating here never waits, commit order is
sequence order, and the time is taken after the lock. A transaction that rolls back leaves the counter as it was.
This is the one way in which answers, cancels, sweeps and sessions write events; holders use the append function.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncSession

from wakeful.domain.errors import SessionGone
from wakeful.domain.events import NewEvent
from wakeful.persistence.mappers.events import event_values
from wakeful.persistence.repositories.base import table_of
from wakeful.persistence.tables import EventRow

__all__ = ["Appender", "Stand"]

_EVENTS = table_of(EventRow)

# The activity time moves forward only.
_ALLOCATE = text("""
UPDATE wakeful.sessions AS s
   SET next_event_sequence = s.next_event_sequence + :count,
       last_event_at = clock.at,
       updated_at = CASE WHEN :activity THEN greatest(s.updated_at, clock.at) ELSE s.updated_at END
  FROM (SELECT greatest(clock_timestamp(), l.last_event_at) AS at
          FROM wakeful.sessions AS l WHERE l.tenant_id = :tenant AND l.id = :session) AS clock
 WHERE s.tenant_id = :tenant AND s.id = :session
RETURNING s.next_event_sequence - :count, s.last_event_at
""")


@dataclass(frozen=True, slots=True)
class Stand:
    """Where appended events stand; `at` is the time of everything written with them."""

    first_sequence: int
    at: datetime


class Appender:
    """Appends to sessions that the unit of work has locked."""

    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self._session, self._tenant_id = session, tenant_id

    async def append(self, session_id: UUID, events: Sequence[NewEvent]) -> Stand:
        """Write `events` at the next sequences. Raises SessionGone."""
        allocated = await self._session.execute(
            _ALLOCATE,
            {
                "count": len(events),
                "tenant": self._tenant_id,
                "session": session_id,
                "activity": any(event.is_activity for event in events),
            },
        )
        row = allocated.one_or_none()
        if row is None:
            raise SessionGone(session_id)
        stand = Stand(row[0], row[1])
        await self._session.execute(
            insert(_EVENTS),
            [
                event_values(event, self._tenant_id, session_id, stand.first_sequence + offset, stand.at)
                for offset, event in enumerate(events)
            ],
        )
        return stand

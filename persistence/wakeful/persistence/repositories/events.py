"""Events of one tenant, as far as actors without a lease read them. They are written by `Appender`."""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from wakeful.domain.content import Content
from wakeful.domain.events import Event
from wakeful.domain.events.turns import AssistantMessageCreated
from wakeful.domain.scopes import RunRef
from wakeful.persistence.mappers.events import event_of
from wakeful.persistence.repositories.base import first, table_of
from wakeful.persistence.tables import EventRow

__all__ = ["EventRepository"]

EVENTS = table_of(EventRow)


class EventRepository:
    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self._session, self._tenant_id = session, tenant_id

    async def by_id(self, session_id: UUID, event_id: UUID) -> Event | None:
        statement = select(EVENTS).where(
            EVENTS.c.tenant_id == self._tenant_id,
            EVENTS.c.session_id == session_id,
            EVENTS.c.event_id == event_id,
        )
        row = await first(self._session, statement)
        return None if row is None else event_of(row)

    async def final_reply(self, run: RunRef) -> Content:
        """The content of the run's last assistant message, None when the run ended without saying anything."""
        statement = (
            select(EVENTS)
            .where(
                EVENTS.c.tenant_id == self._tenant_id,
                EVENTS.c.session_id == run.session_id,
                EVENTS.c.run_id == run.run_id,
                EVENTS.c.event_type == AssistantMessageCreated.TYPE,
            )
            .order_by(EVENTS.c.sequence.desc())
            .limit(1)
        )
        row = await first(self._session, statement)
        payload = None if row is None else event_of(row).payload
        # A message that proposes calls is a turn on the way, not a reply.
        return payload.content if isinstance(payload, AssistantMessageCreated) and not payload.calls else None

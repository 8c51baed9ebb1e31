"""Sessions of one tenant."""

from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from wakeful.domain.errors import NotFound, SessionGone
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession, Session
from wakeful.persistence.mappers.sessions import session_of, session_values
from wakeful.persistence.repositories.base import first, rows, table_of
from wakeful.persistence.tables import SessionDeletionRow, SessionRow, TenantRow

__all__ = ["SessionRepository"]

SESSIONS = table_of(SessionRow)

_CLOSE = text("""
UPDATE wakeful.sessions SET status = 'closed', closed_at = last_event_at WHERE tenant_id = :tenant AND id = :session
""")


class SessionRepository:
    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self._session, self._tenant_id = session, tenant_id

    async def lock(self, session_id: UUID) -> Session:
        """Take the session's row lock, the first of the lock order. Raises SessionGone.

        FOR NO KEY UPDATE is what the append takes as well; inserts that refer to the session pass it.
        """
        row = await first(self._session, self._one(session_id).with_for_update(key_share=True))
        if row is None:
            raise SessionGone(session_id)
        return session_of(row)

    async def share(self, session_id: UUID) -> None:
        """Keep the session from being deleted until this transaction ends. Raises SessionGone.

        FOR KEY SHARE is what a foreign key takes: it waits for nobody who appends.
        """
        statement = self._one(session_id).with_for_update(read=True, key_share=True)
        if await first(self._session, statement) is None:
            raise SessionGone(session_id)

    async def get(self, scope: Scope, session_id: UUID) -> Session:
        """Raises NotFound, also for another principal's."""
        row = await first(self._session, self._one(session_id).where(SESSIONS.c.principal_id == scope.principal_id))
        if row is None:
            raise NotFound("session", session_id)
        return session_of(row)

    async def find(self, session_id: UUID) -> Session | None:
        """Whoever owns it within the tenant."""
        row = await first(self._session, self._one(session_id))
        return None if row is None else session_of(row)

    async def deleted(self, session_id: UUID) -> bool:
        """Whether the id was a session's that has been deleted; it is never used again."""
        tombstone = select(SessionDeletionRow.session_id).where(
            SessionDeletionRow.tenant_id == self._tenant_id, SessionDeletionRow.session_id == session_id
        )
        return await self._session.scalar(tombstone) is not None

    async def insert(self, new: NewSession) -> bool:
        """Insert it, and its tenant when that is new. False when the id, or the tenant's purpose, is taken."""
        await self._session.execute(insert(table_of(TenantRow)).values(id=self._tenant_id).on_conflict_do_nothing())
        statement = insert(SESSIONS).values(session_values(new)).on_conflict_do_nothing().returning(SESSIONS.c.id)
        return await self._session.scalar(statement) is not None

    async def page(self, scope: Scope, *, limit: int, after: Session | None) -> list[Session]:
        """Latest activity first."""
        statement = (
            select(SESSIONS)
            .where(SESSIONS.c.tenant_id == self._tenant_id, SESSIONS.c.principal_id == scope.principal_id)
            .order_by(SESSIONS.c.updated_at.desc(), SESSIONS.c.id)
            .limit(limit)
        )
        if after is not None:
            statement = statement.where(
                or_(
                    SESSIONS.c.updated_at < after.updated_at,
                    and_(SESSIONS.c.updated_at == after.updated_at, SESSIONS.c.id > after.session_id),
                )
            )
        return [session_of(row) for row in await rows(self._session, statement)]

    async def close(self, session_id: UUID) -> None:
        """Mark it closed at the time of its last event; the caller holds its lock and has just appended."""
        await self._session.execute(_CLOSE, {"tenant": self._tenant_id, "session": session_id})

    def _one(self, session_id: UUID) -> Select[Any]:
        return select(SESSIONS).where(SESSIONS.c.tenant_id == self._tenant_id, SESSIONS.c.id == session_id)

"""Sessions in memory."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from wakeful.domain.errors import Conflict, NotFound, SessionBusy
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import SessionClosedEvent, SessionCreated
from wakeful.domain.scopes import Scope, SessionRef
from wakeful.domain.sessions import NewSession, Session
from wakeful.persistence.memory.appending import encode, insert, now_in, session_of
from wakeful.persistence.memory.codec import copy_session, plain
from wakeful.persistence.memory.records import Records
from wakeful.persistence.sessions import checked_limit

__all__ = ["MemorySessions"]


class MemorySessions:
    """See `wakeful.domain.ports.sessions`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def create(self, session: NewSession) -> Session:
        session = replace(session, metadata=plain(session.metadata))
        ref = SessionRef(session.scope.tenant_id, session.session_id)
        actor = Actor("user", str(session.scope.principal_id))
        events = encode([NewEvent(SessionCreated(agent=session.agent, title=session.title), actor)])
        with self._records.unit():
            known = self._records.sessions.get(ref)
            if known is None:
                self._refuse_second_of_purpose(session)
                self._records.sessions.put(ref, _opened(session, self._records.clock()))
                insert(self._records, ref, events, now_in(self._records, ref))
            elif known.scope != session.scope:
                raise Conflict(f"session id {session.session_id} is taken: choose another")
            return copy_session(session_of(self._records, ref))

    def _refuse_second_of_purpose(self, new: NewSession) -> None:
        tenant_id = new.scope.tenant_id
        if new.purpose is not None and any(
            known.scope.tenant_id == tenant_id and known.purpose == new.purpose
            for known in self._records.sessions.values()
        ):
            raise Conflict(f"the tenant has a session for {new.purpose!r} already: use that one")

    async def get(self, scope: Scope, session_id: UUID) -> Session:
        with self._records.unit():
            return copy_session(self._owned(scope, session_id))

    def _owned(self, scope: Scope, session_id: UUID) -> Session:
        session = self._records.sessions.get(SessionRef(scope.tenant_id, session_id))
        if session is None or session.scope != scope:
            raise NotFound("session", session_id)
        return session

    async def page(self, scope: Scope, *, limit: int = 50, after: UUID | None = None) -> list[Session]:
        checked_limit(limit)
        with self._records.unit():
            owned = [session for session in self._records.sessions.values() if session.scope == scope]
            owned.sort(key=lambda session: session.session_id)
            owned.sort(key=lambda session: session.updated_at, reverse=True)
            start = 0 if after is None else owned.index(self._owned(scope, after)) + 1
            return [copy_session(session) for session in owned[start : start + limit]]

    async def close(self, scope: Scope, session_id: UUID) -> Session:
        events = encode([NewEvent(SessionClosedEvent(), Actor("user", str(scope.principal_id)))])
        with self._records.unit():
            session = self._owned(scope, session_id)
            if not session.closed:
                if session.ref in self._records.active:
                    raise SessionBusy(session_id)
                at = insert(self._records, session.ref, events, now_in(self._records, session.ref)).at
                current = session_of(self._records, session.ref)
                self._records.sessions.put(session.ref, replace(current, status="closed", closed_at=at))
            return copy_session(session_of(self._records, session.ref))


def _opened(new: NewSession, at: datetime) -> Session:
    return Session(
        scope=new.scope,
        session_id=new.session_id,
        agent=new.agent,
        title=new.title,
        purpose=new.purpose,
        metadata=new.metadata,
        status="active",
        last_sequence=0,
        created_at=at,
        updated_at=at,
        closed_at=None,
    )

"""Sessions on PostgreSQL."""

from uuid import UUID

from wakeful.domain.errors import Conflict, InvalidInput, SessionBusy, SessionGone
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import SessionClosedEvent, SessionCreated
from wakeful.domain.payloads import check
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession, Session
from wakeful.persistence.unit_of_work import Unit, Units

__all__ = ["MAX_PAGE", "PostgresSessions", "checked_limit"]

MAX_PAGE = 1000


class PostgresSessions:
    """See `wakeful.domain.ports.sessions`."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def create(self, session: NewSession) -> Session:
        check([session.agent, session.title, session.purpose, session.metadata])
        async with self._units.begin(session.scope.tenant_id) as unit:
            if not await unit.sessions.insert(session):
                return await _existing(unit, session)
            # A new row is as good as a lock, and whoever deletes a session holds its row while the tombstone is
            # written: looking after the insert finds every tombstone that matters.
            if await unit.sessions.deleted(session.session_id):
                raise SessionGone(session.session_id)
            created = SessionCreated(agent=session.agent, title=session.title)
            await unit.log.append(session.session_id, [NewEvent(created, _user(session.scope))])
            return await unit.sessions.get(session.scope, session.session_id)

    async def get(self, scope: Scope, session_id: UUID) -> Session:
        async with self._units.begin(scope.tenant_id) as unit:
            return await unit.sessions.get(scope, session_id)

    async def page(self, scope: Scope, *, limit: int = 50, after: UUID | None = None) -> list[Session]:
        checked_limit(limit)
        async with self._units.begin(scope.tenant_id) as unit:
            last = None if after is None else await unit.sessions.get(scope, after)
            return await unit.sessions.page(scope, limit=limit, after=last)

    async def close(self, scope: Scope, session_id: UUID) -> Session:
        async with self._units.begin(scope.tenant_id) as unit:
            await unit.sessions.get(scope, session_id)
            session = await unit.sessions.lock(session_id)
            if session.closed:
                return session
            if await unit.runs.active_in(session_id):
                raise SessionBusy(session_id)
            await unit.log.append(session_id, [NewEvent(SessionClosedEvent(), _user(scope))])
            await unit.sessions.close(session_id)
            return await unit.sessions.get(scope, session_id)


def checked_limit(limit: int) -> None:
    """Raises InvalidInput for a page size that is none."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit must be between 1 and {MAX_PAGE}, not {limit}")


async def _existing(unit: Unit, new: NewSession) -> Session:
    """The session that stands for this request already. Raises Conflict when the id or purpose is another's."""
    known = await unit.sessions.find(new.session_id)
    if known is None:
        raise Conflict(f"the tenant has a session for {new.purpose!r} already: use that one")
    if known.scope != new.scope:
        raise Conflict(f"session id {new.session_id} is taken: choose another")
    return known


def _user(scope: Scope) -> Actor:
    return Actor("user", str(scope.principal_id))

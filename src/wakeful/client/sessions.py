"""Sessions in the hands of their owner: open, submit, follow, close."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from wakeful.client.backend import Backend, surely
from wakeful.client.following import follow
from wakeful.client.owners import Owner, scope_of, uuid_of
from wakeful.client.runs import RunHandle
from wakeful.client.submissions import (
    Messages,
    When,
    inline_or_store,
    key_of,
    messages_of,
    moment_of,
    priority_of,
    request_hash,
)
from wakeful.domain.errors import InvalidInput
from wakeful.domain.events import Event
from wakeful.domain.ids import new_id
from wakeful.domain.payloads import check
from wakeful.domain.runs import Budget, Submission
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession, Session
from wakeful.domain.states import PriorityClass

__all__ = ["SessionHandle", "Sessions"]

DEFAULT_BUDGET = Budget()


class SessionHandle:
    """One session. `record` is its row as it was when this handle was made."""

    def __init__(self, backend: Backend, record: Session) -> None:
        self._backend = backend
        self.record = record

    @property
    def id(self) -> UUID:
        return self.record.session_id

    def __repr__(self) -> str:
        return f"<session {self.id}>"

    async def submit(
        self,
        messages: Messages = (),
        *,
        key: str | None = None,
        priority: "str | PriorityClass" = PriorityClass.INTERACTIVE,
        scheduled_for: When | None = None,
        deadline: When | None = None,
        budget: Budget = DEFAULT_BUDGET,
        metadata: Mapping[str, Any] | None = None,
        agent: str | None = None,
        agent_version: int = 1,
        connection: Any = None,
    ) -> RunHandle:
        """Queue a run. On return it is committed and will be executed, whatever happens to this process.

        With `key`, submitting again returns the same run (also while it is active) for at least as long as the
        key is kept. Without messages the agent speaks first. Workers are woken after the commit, in the
        background; a dead broker neither slows nor fails this.

        With `connection`, a psycopg Connection or AsyncConnection, or an SQLAlchemy AsyncConnection or
        AsyncSession, the run is part of the caller's own transaction: queued when that commits. Nothing is woken
        then; call `wake()` after the commit, or leave it to the poll. The session's row stays locked until the
        caller's transaction ends.

        Raises SessionBusy, SessionClosed, SessionGone, IdempotencyConflict, InvalidInput, InvalidPayload,
        Unavailable; nothing is left behind by any of them.
        """
        said = Submission(
            scope=self.record.scope,
            session_id=self.id,
            agent=agent or self.record.agent,
            agent_version=agent_version,
            messages=messages_of(messages),
            key=key_of(key),
            priority=priority_of(priority),
            scheduled_for=moment_of("scheduled_for", scheduled_for),
            deadline=moment_of("deadline", deadline),
            budget=budget,
            metadata=check(dict(metadata or {})),
            request_hash="",
            key_kept=self._backend.key_kept,
        )
        hashed = _hashed(said, scheduled_for, deadline)
        submission = await inline_or_store(self._backend, hashed)
        if connection is not None:
            done = await self._backend.submit_in(connection, submission)
        else:
            done = await surely(lambda: self._backend.store.queue.submit(submission))
            if scheduled_for is None:
                self._backend.wakeups.wake(submission.priority)
        return RunHandle(self._backend, self.record.scope, done.run, created=done.created)

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Everything the session records after `after`, as it is committed, each event once, until the caller stops."""
        store = self._backend.store
        async for event in follow(store.log, self.record.ref, hints=store.event_hints, after=after):
            yield event

    async def read(self) -> Session:
        """The session's row as it is now."""
        return await self._backend.store.sessions.get(self.record.scope, self.id)

    async def close(self) -> Session:
        """No run can be submitted any more. Again: unchanged. Raises SessionBusy while a run is active."""
        return await surely(lambda: self._backend.store.sessions.close(self.record.scope, self.id))


class Sessions:
    """The sessions of an owner."""

    def __init__(self, backend: Backend, tenant: Owner | None, principal: Owner | None) -> None:
        self._backend, self._tenant, self._principal = backend, tenant, principal

    def scope(self, *, tenant: Owner | None = None, principal: Owner | None = None) -> Scope:
        """The ids that these owners stand for, the client's own where none is given."""
        return scope_of(tenant or self._tenant, principal or self._principal)

    async def create(
        self,
        *,
        agent: str,
        tenant: Owner | None = None,
        principal: Owner | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        session_id: UUID | str | None = None,
    ) -> SessionHandle:
        """Open a session. With a `session_id` of the caller's own, opening it again returns it unchanged; raises
        Conflict when it is another owner's."""
        if not agent:
            raise InvalidInput("a session needs the name of its agent")
        new = NewSession(
            scope=self.scope(tenant=tenant, principal=principal),
            agent=check(agent),
            title=check(title),
            metadata=check(dict(metadata or {})),
            session_id=uuid_of("session", session_id) if session_id is not None else new_id(),
        )
        return SessionHandle(self._backend, await surely(lambda: self._backend.store.sessions.create(new)))

    async def get(
        self, session_id: UUID | str, *, tenant: Owner | None = None, principal: Owner | None = None
    ) -> SessionHandle:
        """Raises NotFound, also for another owner's."""
        scope = self.scope(tenant=tenant, principal=principal)
        found = await self._backend.store.sessions.get(scope, uuid_of("session", session_id))
        return SessionHandle(self._backend, found)

    async def list(
        self,
        *,
        limit: int = 50,
        after: UUID | str | None = None,
        tenant: Owner | None = None,
        principal: Owner | None = None,
    ) -> "list[Session]":
        """Rows, latest activity first; `after` is the last id of the page before."""
        scope = self.scope(tenant=tenant, principal=principal)
        last = uuid_of("session", after) if after is not None else None
        return await self._backend.store.sessions.page(scope, limit=limit, after=last)

    async def close(
        self, session_id: UUID | str, *, tenant: Owner | None = None, principal: Owner | None = None
    ) -> Session:
        """Close it. Again: unchanged. Raises NotFound, and SessionBusy while a run is active."""
        scope = self.scope(tenant=tenant, principal=principal)
        identifier = uuid_of("session", session_id)
        return await surely(lambda: self._backend.store.sessions.close(scope, identifier))


def _hashed(said: Submission, scheduled_for: When | None, deadline: When | None) -> Submission:
    return replace(said, request_hash=request_hash(said, scheduled_for=scheduled_for, deadline=deadline))

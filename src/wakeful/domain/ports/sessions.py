"""Port: sessions and what their owners may read of runs."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from wakeful.domain.invocations import Invocation
from wakeful.domain.runs import Run
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession, Session
from wakeful.domain.states import RunStatus

__all__ = ["RunReader", "Sessions"]


class Sessions(Protocol):
    async def create(self, session: NewSession) -> Session:
        """Open a session (`session.created` in the same transaction). The same id again returns it unchanged;
        another owner's id raises Conflict. The tenant's row is made when it is new."""
        ...

    async def get(self, scope: Scope, session_id: UUID) -> Session:
        """Raises NotFound, also for another owner's."""
        ...

    async def page(self, scope: Scope, *, limit: int = 50, after: UUID | None = None) -> list[Session]:
        """Latest activity first; `after` is the last id of the page before."""
        ...

    async def close(self, scope: Scope, session_id: UUID) -> Session:
        """Close it (`session.closed`); closing again changes nothing. Raises SessionBusy with an active run."""
        ...


class RunReader(Protocol):
    async def get(self, scope: Scope, run_id: UUID) -> Run:
        """Raises NotFound, also for another owner's."""
        ...

    async def page(
        self,
        scope: Scope,
        *,
        session_id: UUID | None = None,
        statuses: Sequence[RunStatus] = (),
        limit: int = 50,
        before: UUID | None = None,
    ) -> list[Run]:
        """Newest first; `before` is the last id of the page before."""
        ...

    async def invocations(self, scope: Scope, run_id: UUID) -> list[Invocation]:
        """The run's calls in (step, position) order."""
        ...

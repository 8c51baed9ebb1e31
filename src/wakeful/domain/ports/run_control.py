"""Port: what people and other runs do to a run without holding its lease.

Each locks session, run and call in this order and only then reads the status and takes the edge it allows.
The same `event_id` again returns the first success.
"""

from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from wakeful.domain.content import CallResult
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import RunStatus

__all__ = ["Controlled", "RunControl"]


@dataclass(frozen=True, slots=True)
class Controlled:
    """What the action left: the run's status, and whether it did anything this time."""

    run: RunRef
    status: RunStatus
    applied: bool


class RunControl(Protocol):
    async def cancel(self, scope: Scope, run_id: UUID, *, reason: str | None = None) -> Controlled:
        """QUEUED or WAITING_*: CANCELLED at once, every open call given its result. RUNNING: asked for
        (`run.cancel_requested`); the holder, or the sweep of its expired lease, ends it. Terminal: not applied.
        Its child runs are cancelled by sweep. Errors: NotFound."""
        ...

    async def answer(
        self, scope: Scope, run_id: UUID, call: UUID, answer: Any, *, event_id: UUID | None = None
    ) -> Controlled:
        """Answer an open question: `tool.call.completed` by the user. With nothing open any more a waiting run is
        QUEUED again (`run.requeued`, reason input). Errors: NotFound, AlreadyAnswered, Conflict (the call is no
        question), RunEnded, InvalidPayload."""
        ...

    async def approve(
        self, scope: Scope, run_id: UUID, call: UUID, *, note: str | None = None, event_id: UUID | None = None
    ) -> Controlled:
        """Allow a call that awaits approval: it becomes REQUESTED and is executed like any other."""
        ...

    async def deny(
        self, scope: Scope, run_id: UUID, call: UUID, *, note: str | None = None, event_id: UUID | None = None
    ) -> Controlled:
        """Refuse a call that awaits approval: `tool.call.denied` is its one result."""
        ...

    async def resolve(
        self,
        scope: Scope,
        run_id: UUID,
        call: UUID,
        *,
        happened: bool,
        note: str | None = None,
        event_id: UUID | None = None,
    ) -> Controlled:
        """Say what happened to an UNCERTAIN call (`tool.call.resolved`): a note in history, never a second result.
        Once per call; also on a terminal run. Errors: NotFound, Conflict."""
        ...

    async def deliver(self, parent: RunRef, call: UUID, result: CallResult) -> Controlled:
        """Give a delegating call its child's result and mark it delivered. Delivering again changes nothing."""
        ...

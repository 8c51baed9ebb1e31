"""Invocations: the durable record of one tool call, found by (run, step, position), never by a provider's id."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from wakeful.domain.ids import invocation_id
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import IdempotencyClass, InvocationStatus

__all__ = ["Invocation", "InvocationChange", "NewInvocation"]


@dataclass(frozen=True, slots=True)
class NewInvocation:
    """A proposed call, written with its turn. Written again with another tool or hash it raises CallMismatch."""

    run_id: UUID
    step: int
    position: int
    tool: str
    arguments_hash: str
    idempotency_class: IdempotencyClass
    status: InvocationStatus = InvocationStatus.REQUESTED
    provider_call_id: str = ""
    origin: str = "model"
    expires_in: timedelta | None = None
    """How long a question or approval stays open, from the append's database time (`expires_at` in the row)."""
    child_run_id: UUID | None = None
    child_session_id: UUID | None = None

    @property
    def id(self) -> UUID:
        return invocation_id(self.run_id, self.step, self.position, self.origin)

    @property
    def idempotency_key(self) -> str:
        """What a tool hands to its service: the same on every attempt."""
        return str(self.id)


@dataclass(frozen=True, slots=True)
class InvocationChange:
    """One transition, applied only while the call is in one of `expected` (all of them non-terminal).

    A terminal `status` must come in the same append as the result event. Not in `expected`: the append is
    refused as AlreadyAnswered.
    """

    invocation_id: UUID
    status: InvocationStatus
    expected: frozenset[InvocationStatus]
    epoch: int | None = None
    """Set with RUNNING: the lease epoch under which the effect is tried."""
    context_updates: dict[str, Any] | None = None
    approved_by: str | None = None


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call's record as stored."""

    id: UUID
    run: RunRef
    origin: str
    step: int
    position: int
    tool: str
    arguments_hash: str
    provider_call_id: str
    idempotency_class: IdempotencyClass
    idempotency_key: str
    status: InvocationStatus
    epoch: int | None
    attempt: int
    approved_by: str | None
    child_run_id: UUID | None
    child_session_id: UUID | None
    context_updates: dict[str, Any] | None
    expires_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    """Of the first attempt."""
    finished_at: datetime | None
    resolved_at: datetime | None = None
    """When a person said what became of an UNCERTAIN call."""

"""Runs: submission, the row, the claim and the lease."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from wakeful.domain.content import Content, Failure
from wakeful.domain.ids import new_id
from wakeful.domain.scopes import RunRef, Scope, SessionRef
from wakeful.domain.states import PriorityClass, RunStatus

__all__ = ["Budget", "Claim", "Lease", "Message", "Run", "Submission", "Submitted"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend; None is no limit. Calls past `max_tool_calls` are refused, the others end the run."""

    max_steps: int | None = 50
    max_tool_calls: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message that a submission adds to the session before the run."""

    content: Content
    role: Literal["user", "system"] = "user"


@dataclass(frozen=True, slots=True)
class Submission:
    """A run to queue. With `key`, submitting again returns the same run for as long as the key is kept.

    No message at all is legal: the agent then speaks first.
    """

    scope: Scope
    session_id: UUID
    agent: str
    agent_version: int
    messages: tuple[Message, ...] = ()
    key: str | None = None
    request_hash: str = ""
    priority: PriorityClass = PriorityClass.INTERACTIVE
    scheduled_for: datetime | None = None
    deadline: datetime | None = None
    budget: Budget = Budget()
    metadata: dict[str, Any] = field(default_factory=dict)
    run_id: UUID = field(default_factory=new_id)
    parent: RunRef | None = None
    parent_invocation_id: UUID | None = None
    trace_id: str | None = None
    key_kept: timedelta = timedelta(hours=24)

    @property
    def session(self) -> SessionRef:
        return SessionRef(self.scope.tenant_id, self.session_id)

    @property
    def ref(self) -> RunRef:
        return RunRef(self.scope.tenant_id, self.session_id, self.run_id)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The run a submission stands for; `created` is False when the key or the run id was known already."""

    run: RunRef
    created: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to execute a run: its owner (one process incarnation) and the fencing token."""

    run: RunRef
    owner: UUID
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A run just taken: what the worker pool needs to know before it reads any content."""

    lease: Lease
    agent: str
    agent_version: int
    priority: PriorityClass
    attempts: int
    """Claims so far, this one included."""
    suspect: bool
    """Its last holder's lease expired and no step was committed since: execute it alone."""
    waited_seconds: float
    """From due to claimed, by the database's clock."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as stored."""

    ref: RunRef
    principal_id: UUID
    agent: str
    agent_version: int
    status: RunStatus
    priority: PriorityClass
    scheduled_for: datetime | None
    deadline: datetime | None
    budget: Budget
    step: int
    tool_call_count: int
    token_count: int
    attempts: int
    lease_owner: UUID | None
    lease_epoch: int
    lease_expires_at: datetime | None
    lease_expirations: int
    suspect: bool
    cancel_requested_at: datetime | None
    parent: RunRef | None
    parent_invocation_id: UUID | None
    result_delivered_at: datetime | None
    failure: Failure | None
    attempt_failures: tuple[dict[str, Any], ...]
    metadata: dict[str, Any]
    trace_id: str | None
    export_consent: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime

    @property
    def scope(self) -> Scope:
        return Scope(self.ref.tenant_id, self.principal_id)

"""Payloads of a run's life and of the session it lives in."""

from typing import Any, ClassVar, Literal
from uuid import UUID

from wakeful.domain.content import Content, Failure
from wakeful.domain.events.envelope import Payload

__all__ = [
    "BudgetAmended",
    "ContextCompacted",
    "RunCancelRequested",
    "RunCancelled",
    "RunCheckpointed",
    "RunChildStarted",
    "RunCompleted",
    "RunFailed",
    "RunFenced",
    "RunQueued",
    "RunRequeued",
    "RunResumed",
    "RunStarted",
    "RunWaiting",
    "SessionClosedEvent",
    "SessionCreated",
    "UserMessageReceived",
]

RequeueReason = Literal["lease_expired", "drain", "input", "approval", "child", "timeout"]


class SessionCreated(Payload):
    TYPE: ClassVar[str] = "session.created"
    HISTORY: ClassVar[bool] = True
    agent: str
    title: str | None = None


class SessionClosedEvent(Payload):
    TYPE: ClassVar[str] = "session.closed"
    HISTORY: ClassVar[bool] = True


class UserMessageReceived(Payload):
    """A message into the session. `role` is `user`, or `system` for instructions that arrive in the middle."""

    TYPE: ClassVar[str] = "user.message.received"
    HISTORY: ClassVar[bool] = True
    role: Literal["user", "system"] = "user"
    content: Content


class RunQueued(Payload):
    """Submitted. `messages` says how many user.message.received events stand before it, in the same append."""

    TYPE: ClassVar[str] = "run.queued"
    agent: str
    agent_version: int
    priority: int
    messages: int = 0
    parent_run_id: UUID | None = None


class RunStarted(Payload):
    """The first execution began, under this lease epoch."""

    TYPE: ClassVar[str] = "run.started"
    epoch: int


class RunResumed(Payload):
    """A later execution began. `checkpoint` is the number it started from, None when every checkpoint was lost."""

    TYPE: ClassVar[str] = "run.resumed"
    epoch: int
    checkpoint: int | None = None
    adopted: int = 0
    """How many history items committed after that checkpoint were adopted."""


class RunCheckpointed(Payload):
    """Announces a checkpoint that carries more than position; ordinary ones leave no event."""

    TYPE: ClassVar[str] = "run.checkpointed"
    trigger: str
    runtime_tool_call: dict[str, Any] | None = None


class RunWaiting(Payload):
    """Released until the open calls are answered; `calls` are their invocation ids."""

    TYPE: ClassVar[str] = "run.waiting"
    status: str
    calls: list[UUID]


class RunRequeued(Payload):
    """Back to QUEUED. Only `lease_expired` counts against the crash allowance."""

    TYPE: ClassVar[str] = "run.requeued"
    reason: RequeueReason
    epoch: int
    lease_expirations: int = 0
    delay_seconds: float = 0.0


class RunFenced(Payload):
    """A worker that had lost the lease noticed it: at most one per run and epoch."""

    TYPE: ClassVar[str] = "run.fenced"
    epoch: int


class RunCompleted(Payload):
    """Ended well. `message_sequence` is unset: the final reply is the run's last assistant message, if any."""

    TYPE: ClassVar[str] = "run.completed"
    steps: int
    tool_calls: int


class RunFailed(Payload):
    TYPE: ClassVar[str] = "run.failed"
    failure: Failure


class RunCancelled(Payload):
    TYPE: ClassVar[str] = "run.cancelled"
    reason: str | None = None


class RunCancelRequested(Payload):
    TYPE: ClassVar[str] = "run.cancel_requested"
    reason: str | None = None


class RunChildStarted(Payload):
    TYPE: ClassVar[str] = "run.child_started"
    invocation_id: UUID
    child_run_id: UUID
    child_session_id: UUID


class ContextCompacted(Payload):
    """From here on the context starts with a summary of everything up to `through_sequence`."""

    TYPE: ClassVar[str] = "context.compacted"
    HISTORY: ClassVar[bool] = True
    through_sequence: int


class BudgetAmended(Payload):
    TYPE: ClassVar[str] = "budget.amended"
    max_steps: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None

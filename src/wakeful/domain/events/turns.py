"""Payloads of model turns and tool calls."""

from typing import Any, ClassVar
from uuid import UUID

from wakeful.domain.content import CallResult, Content, ProposedCall, Usage
from wakeful.domain.events.envelope import Payload

__all__ = [
    "ApprovalRequested",
    "AssistantMessageCreated",
    "CallApproved",
    "CallCancelled",
    "CallCompleted",
    "CallDenied",
    "CallEnded",
    "CallFailed",
    "CallRefused",
    "CallResolved",
    "CallStarted",
    "CallUncertain",
    "ModelCallFailed",
    "ModelResponseCompleted",
]


class ModelResponseCompleted(Payload):
    """A model call returned. Version 2 added the accounting watermark; in version 1 it is None (not recorded)."""

    TYPE: ClassVar[str] = "model.response.completed"
    VERSION: ClassVar[int] = 2
    step: int
    provider: str
    model: str
    finish_reason: str
    usage: Usage = Usage()
    tool_call_count_before_turn: int | None
    repaired: int = 0
    """Characters of the response that could not be stored and were replaced."""


class ModelCallFailed(Payload):
    """One failed attempt at a model call; the step tries again after `delay_seconds`, or the run fails."""

    TYPE: ClassVar[str] = "model.call.failed"
    step: int
    attempt: int
    code: str
    message: str
    delay_seconds: float | None = None


class AssistantMessageCreated(Payload):
    """What the model said: text and proposed calls, in order. Reasoning text is never part of it."""

    TYPE: ClassVar[str] = "assistant.message.created"
    HISTORY: ClassVar[bool] = True
    step: int
    content: Content = None
    calls: list[ProposedCall] = []


class _Call(Payload):
    invocation_id: UUID
    step: int
    position: int
    tool: str


class CallStarted(_Call):
    """The intent: committed just before the effect, under this lease epoch."""

    TYPE: ClassVar[str] = "tool.call.started"
    epoch: int
    attempt: int


class ApprovalRequested(_Call):
    TYPE: ClassVar[str] = "tool.call.approval_requested"


class CallApproved(_Call):
    """A person allowed it; the call is then executed like any other."""

    TYPE: ClassVar[str] = "tool.call.approved"
    note: str | None = None
    client_event_id: UUID | None = None


class CallEnded(_Call):
    """The base of every event that gives a call its one result."""

    HISTORY: ClassVar[bool] = True
    result: CallResult
    repaired: int = 0
    client_event_id: UUID | None = None
    """The id a client chose for its answer; the event's own id is derived from the call."""


class CallCompleted(CallEnded):
    TYPE: ClassVar[str] = "tool.call.completed"


class CallFailed(CallEnded):
    """Ended with an error that is known: the tool says nothing was done, or the class allows repeating."""

    TYPE: ClassVar[str] = "tool.call.failed"


class CallRefused(CallEnded):
    """Never started: unknown tool, invalid arguments, over budget, or a third identical call in a row."""

    TYPE: ClassVar[str] = "tool.call.refused"


class CallDenied(CallEnded):
    """A person said no."""

    TYPE: ClassVar[str] = "tool.call.denied"


class CallCancelled(CallEnded):
    """Ended before it started, or was safe to abandon."""

    TYPE: ClassVar[str] = "tool.call.cancelled"


class CallUncertain(CallEnded):
    """It was started and nobody can know whether it happened. Not a failure, and never repeated."""

    TYPE: ClassVar[str] = "tool.call.uncertain"


class CallResolved(_Call):
    """A person (or the service) later said what happened to an uncertain call: a note, never a second result."""

    TYPE: ClassVar[str] = "tool.call.resolved"
    HISTORY: ClassVar[bool] = True
    happened: bool
    note: str | None = None
    data: Any = None
    client_event_id: UUID | None = None

"""A run's events as a tree: what happened in which step, with times. Plain data; drawing it is the reader's."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from wakeful.client.sentences import sentence, shortened
from wakeful.domain.content import CallResult, Content, Usage
from wakeful.domain.events import Event
from wakeful.domain.events.turns import (
    ApprovalRequested,
    AssistantMessageCreated,
    CallApproved,
    CallEnded,
    CallResolved,
    CallStarted,
    ModelResponseCompleted,
)

__all__ = ["CallNode", "Mark", "StepNode", "Timeline"]

CallEvent = CallStarted | CallEnded | ApprovalRequested | CallApproved | CallResolved


@dataclass(slots=True)
class CallNode:
    """One call: when its effect was last tried, how often, and its one result."""

    invocation_id: UUID | None
    position: int
    tool: str
    arguments: str
    attempts: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: CallResult | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """The result's status, or what can be said without one."""
        if self.result is not None:
            return self.result.status.value
        return "RUNNING" if self.started_at else "OPEN"

    def apply(self, event: Event, payload: CallEvent) -> None:
        self.invocation_id = payload.invocation_id
        match payload:
            case CallStarted():
                self.attempts, self.started_at = max(self.attempts, payload.attempt), event.created_at
            case CallEnded():
                self.ended_at, self.result = event.created_at, payload.result
            case _:
                if (text := sentence(payload)) is not None:
                    self.notes.append(text)


@dataclass(slots=True)
class StepNode:
    """One model turn and its calls."""

    step: int
    at: datetime
    provider: str = ""
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    content: Content = None
    calls: list[CallNode] = field(default_factory=list)


@dataclass(slots=True)
class Mark:
    """Anything that happened to the run between its steps."""

    at: datetime
    type: str
    text: str


@dataclass(slots=True)
class Timeline:
    """Feed it a run's events in order; `entries` is the tree so far."""

    entries: list[StepNode | Mark] = field(default_factory=list)
    _calls: dict[tuple[int, int], CallNode] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Timeline":
        timeline = cls()
        for event in events:
            timeline.apply(event)
        return timeline

    @property
    def steps(self) -> list[StepNode]:
        return [entry for entry in self.entries if isinstance(entry, StepNode)]

    def apply(self, event: Event) -> None:
        match event.payload:
            case ModelResponseCompleted() as p:
                node = StepNode(p.step, event.created_at, p.provider, p.model, p.usage)
                self.entries.append(node)
            case AssistantMessageCreated() as p:
                self._message(event, p)
            case CallStarted() | CallEnded() | ApprovalRequested() | CallApproved() | CallResolved() as p:
                if call := self._calls.get((p.step, p.position)):
                    call.apply(event, p)
            case p:
                if (text := sentence(p)) is not None:
                    self.entries.append(Mark(event.created_at, event.type, text))

    def _message(self, event: Event, message: AssistantMessageCreated) -> None:
        node = next((s for s in reversed(self.steps) if s.step == message.step), None)
        if node is None:
            node = StepNode(message.step, event.created_at)
            self.entries.append(node)
        node.content = message.content
        for proposed in message.calls:
            call = CallNode(None, proposed.position, proposed.tool, shortened(proposed.arguments, 400))
            node.calls.append(call)
            self._calls[message.step, proposed.position] = call

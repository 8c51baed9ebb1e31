"""Session history folded into a conversation: pure, total, the same for one log prefix in every process.

The fold accepts every log: results stand with their call wherever they were committed, a call may stay
unanswered, messages may come while calls are open. In-memory conversation always equals the log.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from wakeful.domain.content import CallResult, Content, ProposedCall
from wakeful.domain.events import HISTORY_TYPES, Event
from wakeful.domain.events.runs import ContextCompacted, UserMessageReceived
from wakeful.domain.events.turns import (
    AssistantMessageCreated,
    CallEnded,
    CallResolved,
    ModelResponseCompleted,
)
from wakeful.domain.ids import invocation_id
from wakeful.domain.models import ModelMessage

__all__ = ["CONVERSATION_TYPES", "CallRecord", "Conversation", "Entry", "MessageEntry", "NoteEntry", "TurnEntry"]


@dataclass(slots=True)
class MessageEntry:
    """A message into the session."""

    sequence: int
    role: str
    content: Content


@dataclass(slots=True)
class CallRecord:
    """A proposed call and, once the log holds it, its one result."""

    invocation_id: UUID
    call: ProposedCall
    result: CallResult | None = None
    result_sequence: int | None = None


@dataclass(slots=True)
class TurnEntry:
    """An assistant message with its calls. `count_before` is the tool calls counted before it, None if unrecorded."""

    sequence: int
    run_id: UUID | None
    step: int
    content: Content
    calls: list[CallRecord]
    count_before: int | None = None
    rendered: tuple[ModelMessage, ...] | None = field(default=None, compare=False, repr=False)
    """What a model is sent for it, kept by whoever rendered it once every call has its result: it cannot change any
    more, and a long run sends all of its turns at every step."""

    @property
    def unanswered(self) -> list[CallRecord]:
        return [record for record in self.calls if record.result is None]

    @property
    def final(self) -> bool:
        return not self.calls


@dataclass(slots=True)
class NoteEntry:
    """A later word on an uncertain call: it follows the results of the turn it falls into."""

    sequence: int
    resolution: CallResolved


Entry = MessageEntry | TurnEntry | NoteEntry


@dataclass(slots=True)
class Conversation:
    """The fold's state. Feed it events in sequence order; those it has seen are passed over."""

    entries: list[Entry] = field(default_factory=list)
    last_sequence: int = 0
    compacted_through: int = 0
    """Everything up to here was summarized for a model once. The entries stay."""
    _calls: dict[UUID, CallRecord] = field(default_factory=dict)
    _counts: dict[tuple[UUID | None, int], int | None] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Adopt one event; anything that is no part of the conversation only moves `last_sequence`."""
        if event.sequence <= self.last_sequence:
            return
        self.last_sequence = event.sequence
        match event.payload:
            case UserMessageReceived() as message:
                self.entries.append(MessageEntry(event.sequence, message.role, message.content))
            case ModelResponseCompleted() as response:
                self._counts[event.run_id, response.step] = response.tool_call_count_before_turn
            case AssistantMessageCreated() as message:
                self._add_turn(event, message)
            case CallEnded() as ended:
                record = self._calls.get(ended.invocation_id)
                if record is not None and record.result is None:
                    record.result, record.result_sequence = ended.result, event.sequence
            case ContextCompacted() as compacted:
                self.compacted_through = max(self.compacted_through, compacted.through_sequence)
            case CallResolved() as resolved:
                self.entries.append(NoteEntry(event.sequence, resolved))
            case _:
                pass

    def _add_turn(self, event: Event, message: AssistantMessageCreated) -> None:
        calls = [CallRecord(_invocation(event.run_id, message.step, call.position), call) for call in message.calls]
        self._calls.update((record.invocation_id, record) for record in calls)
        count = self._counts.pop((event.run_id, message.step), None)
        self.entries.append(TurnEntry(event.sequence, event.run_id, message.step, message.content, calls, count))

    def turns_backwards(self, run_id: UUID) -> Iterator[TurnEntry]:
        """The run's turns, newest first."""
        return (e for e in reversed(self.entries) if isinstance(e, TurnEntry) and e.run_id == run_id)

    def latest_turn(self, run_id: UUID) -> TurnEntry | None:
        """The run's newest turn: where the run is, whatever any checkpoint says."""
        return next(self.turns_backwards(run_id), None)

    def has_result(self, invocation: UUID) -> bool:
        record = self._calls.get(invocation)
        return record is not None and record.result is not None

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Conversation":
        conversation = cls()
        for event in events:
            conversation.apply(event)
        return conversation


CONVERSATION_TYPES = HISTORY_TYPES | {ModelResponseCompleted.TYPE}
"""What a reader has to fetch to fold a conversation."""


def _invocation(run_id: UUID | None, step: int, position: int) -> UUID:
    return invocation_id(run_id, step, position) if run_id else UUID(int=0)

"""Session history as a projection: which events make which entry of the conversation.

Its documents hold sequences and no content, so the log keeps the only copy of every message. What the events of some
entries make is `wakeful.domain.history.Conversation`: one fold, whether it reads the whole log or a page of it.
"""

from collections.abc import Iterable
from typing import ClassVar

from wakeful.domain.events import Event
from wakeful.domain.events.runs import UserMessageReceived
from wakeful.domain.events.turns import AssistantMessageCreated, CallEnded, CallResolved, ModelResponseCompleted
from wakeful.domain.history import CONVERSATION_TYPES
from wakeful.domain.projections import Projection, State

__all__ = ["SessionHistory"]


class SessionHistory(Projection):
    """One document per entry: the sequences of its events. Its position is the entry's place, and 0 for what makes no
    entry (yet).

    A turn's model response, message and results stand in one document, wherever in the log they were committed; so a
    page of entries is complete without reading what lies between and behind them.
    """

    name: ClassVar[str] = "history"
    types: ClassVar[frozenset[str] | None] = CONVERSATION_TYPES

    def keys(self, event: Event) -> Iterable[str]:
        match event.payload:
            case ModelResponseCompleted() | AssistantMessageCreated() | CallEnded() as part if event.run_id is not None:
                return (f"{event.run_id.hex}.{part.step}",)
            case _:
                return (str(event.sequence),)

    def apply(self, event: Event, state: State) -> None:
        (key,) = self.keys(event)
        makes_entry = isinstance(event.payload, UserMessageReceived | AssistantMessageCreated | CallResolved)
        position = event.sequence if makes_entry else state.position(key)
        state.put([*(state.get(key) or []), event.sequence], key, position=position)

"""The driver port: what decides a run's next step. The executor does not know what an agent is."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pydantic import JsonValue

from wakeful.domain.content import ArtifactRef, Content, ProposedCall, Usage
from wakeful.domain.history import Conversation
from wakeful.domain.runs import Run

__all__ = ["Compacting", "Driver", "Summary", "Turn", "View"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What happens next: calls to execute; or, without calls, the final reply; or, silent, the end without one.

    `calls` have positions 0, 1, 2 … in order.
    """

    content: Content = None
    calls: tuple[ProposedCall, ...] = ()
    silent: bool = False
    """The run ends and says nothing: no assistant message is recorded."""
    finish_reason: str = "stop"
    usage: Usage = Usage()
    provider: str = ""
    model: str = ""
    continuation: JsonValue = None
    repaired: int = 0

    @property
    def final(self) -> bool:
        return not self.calls


@dataclass(frozen=True, slots=True)
class View:
    """What a driver may look at: the run, the whole conversation, and what the budget leaves."""

    run: Run
    conversation: Conversation
    step: int
    """The step about to be taken, from 1."""
    tools_allowed: bool
    """False on the last allowed step: it is reserved for an answer."""
    continuation: JsonValue = None
    summary: str | None = None
    summary_through: int | None = None
    context_updates: Mapping[str, Any] = field(default_factory=dict)
    """What the run's tools put into `ToolCall.context_updates`: later calls over earlier ones, the same after a
    crash."""
    fetch: Callable[[ArtifactRef], Awaitable[bytes]] | None = None
    """Reads what was too large to stand in the log."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A text that stands for everything in the conversation up to `through_sequence`."""

    text: str
    through_sequence: int
    usage: Usage = Usage()


class Driver(Protocol):
    async def next_turn(self, view: View) -> Turn:
        """Decide the next turn. Called with no transaction open; may take long and may be called again for the
        same step after a crash. Raises TransientModelError (asked again with backoff) or another RunFailure."""
        ...


@runtime_checkable
class Compacting(Protocol):
    """A driver whose context has a limit."""

    async def compact(self, view: View) -> Summary | None:
        """The summary to go on with, None while the context fits. Asked before each turn, under the same terms as
        `next_turn`; asked again for what it has summarized when the checkpoint with the text was lost."""
        ...

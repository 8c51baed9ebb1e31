"""How an execution ends, and what interrupts one."""

from enum import Enum, auto

from wakeful.runtime.holding import Holding

__all__ = ["Cancelled", "Draining", "Ending", "Interrupted", "interruption"]


class Ending(Enum):
    """How a worker let go of a run."""

    COMPLETED = auto()
    FAILED = auto()
    CANCELLED = auto()
    WAITING = auto()
    """Released until a question, approval or child is answered."""
    HANDED_BACK = auto()
    """Back in the queue, no crash counted: the process drains."""
    FENCED = auto()
    """The lease was another's; nothing more was written."""
    ABANDONED = auto()
    """Let go without a word, the database being out of reach: the lease will lapse."""


class Interrupted(Exception):
    """Something outside asks the run to stop what it is doing."""


class Cancelled(Interrupted):
    """The owner asked to cancel the run."""


class Draining(Interrupted):
    """The process is stopping."""


def interruption(holding: Holding) -> Interrupted | None:
    """The most urgent reason to stop, if there is one. A lost lease is told by the next append."""
    if holding.cancel_requested:
        return Cancelled()
    if holding.draining:
        return Draining()
    return None

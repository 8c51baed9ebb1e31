"""How a worker lets go of a run."""

from enum import Enum, auto

__all__ = ["Ending"]


class Ending(Enum):
    """What an execution came to."""

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

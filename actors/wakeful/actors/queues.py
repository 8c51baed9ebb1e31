"""Names on the broker: one queue and one actor per priority class."""

from wakeful.domain.states import PriorityClass

__all__ = ["MESSAGE_MAX_AGE_MS", "actor_name", "classes_of", "wake_queue"]

_WAKE = "wakeful.wake."

MESSAGE_MAX_AGE_MS = 60_000
"""An older wakeup is dropped: every poll since has looked already."""


def wake_queue(priority: PriorityClass) -> str:
    return f"{_WAKE}{priority.label}"


def actor_name(priority: PriorityClass) -> str:
    return f"wake_{priority.label}"


def classes_of(queues: "set[str] | None") -> frozenset[PriorityClass]:
    """The classes whose wake queues are among `queues`; None names every queue."""
    return frozenset(p for p in PriorityClass if queues is None or wake_queue(p) in queues)

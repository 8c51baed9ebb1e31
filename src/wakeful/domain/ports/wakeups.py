"""Port: wakeups. A wakeup says "look now" and nothing else; losing every one costs a poll interval each."""

from typing import Protocol

from wakeful.domain.states import PriorityClass

__all__ = ["NoWakeups", "Wakeups"]


class Wakeups(Protocol):
    def wake(self, priority: PriorityClass) -> None:
        """Hint that a run of this class may be due. Returns at once, never blocks, never raises; hints given
        faster than they can be sent are coalesced."""
        ...


class NoWakeups:
    """Every hint lost: runs start at poll speed."""

    def wake(self, priority: PriorityClass) -> None:
        return

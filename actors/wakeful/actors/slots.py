"""How many runs a process executes at once, and how much of that each class may count on."""

from collections.abc import Collection, Mapping

from wakeful.domain.errors import ConfigurationError
from wakeful.domain.states import PriorityClass

__all__ = ["Slots"]


class Slots:
    """`total` slots: a floor per class, and the rest shared.

    A floor is never lent: a flood in one class leaves the others theirs, and a floor held while its class is empty
    is capacity spent on purpose. Not safe for several threads at once.
    """

    def __init__(
        self,
        total: int,
        *,
        floors: Mapping[PriorityClass, int] | None = None,
        classes: Collection[PriorityClass] = tuple(PriorityClass),
    ) -> None:
        """Raises ConfigurationError when the floors do not fit, or a class could never get a slot."""
        self.total = total
        self.classes = frozenset(classes)
        self._floors = {priority: (floors or {}).get(priority, 0) for priority in self.classes}
        self._used = dict.fromkeys(sorted(self.classes), 0)
        self._shared = total - sum(self._floors.values())
        self._check(floors or {})

    def capacity(self, classes: Collection[PriorityClass] | None = None) -> dict[PriorityClass, int]:
        """What one claim may take of each of `classes` (all served ones), without those that may take nothing.

        The free shared slots are offered to the most urgent class only, so that one claim never takes more than
        there is; ask again without that class when it did not use them.
        """
        shared = self._shared - sum(max(0, self._used[p] - self._floors[p]) for p in self.classes)
        offered: dict[PriorityClass, int] = {}
        for priority in sorted(self.classes if classes is None else self.classes.intersection(classes)):
            free = max(0, self._floors[priority] - self._used[priority]) + max(0, shared)
            if free:
                offered[priority] = free
                shared = 0
        return offered

    def take(self, priority: PriorityClass) -> None:
        """One more run of this class. An adopted run is taken even when nothing is free: it holds its lease."""
        self._used[priority] = self._used.get(priority, 0) + 1

    def release(self, priority: PriorityClass) -> None:
        self._used[priority] -= 1

    @property
    def used(self) -> int:
        return sum(self._used.values())

    def _check(self, floors: Mapping[PriorityClass, int]) -> None:
        if self.total < 1 or not self.classes:
            raise ConfigurationError(f"{self.total} slots for {len(self.classes)} classes: at least one of each")
        if any(count < 0 for count in floors.values()):
            raise ConfigurationError("a floor is a number of slots, not less than 0")
        for priority in floors.keys() - self.classes:
            raise ConfigurationError(f"a floor for class {priority.label}, which this worker does not serve")
        if self._shared < 0:
            raise ConfigurationError(
                f"floors of {self.total - self._shared} slots do not fit into {self.total}: lower them or add slots"
            )
        starved = [p.label for p in sorted(self.classes) if self._shared == 0 and self._floors[p] == 0]
        if starved:
            raise ConfigurationError(f"no slot is left for class {', '.join(starved)}: give it a floor or add slots")

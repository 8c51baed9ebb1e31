"""Which experiments there are, and which stand for others."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from wakeful.faults.crashes.experiments import WHEN, Crash, Experiment
from wakeful.faults.crashes.programs import PROGRAM
from wakeful.faults.crashes.shapes import SHAPES

__all__ = ["all_single", "one_of_each_kind", "random_pairs", "random_programs"]

Points = Callable[[str], Sequence[str]]
"""The labels of a shape's points, in order."""

_DURABLE = (
    "wakeful_append",
    "COMMIT of INSERT",
    "COMMIT of UPDATE",
    "effect",
    "WITH moment",
    "SELECT * FROM wakeful.sub",
)
"""What changes something for good. A death within an open transaction is the death before it."""

RECOVERY_POINTS = 30
FAR = 0.3


def all_single(shape: str, points: Points) -> Iterator[Experiment]:
    """Every point of the shape, before and after."""
    for number in range(1, len(points(shape)) + 1):
        for when in WHEN:
            yield Experiment(shape, (Crash(number, when),))


def one_of_each_kind(shape: str, points: Points) -> Iterator[Experiment]:
    """A death after each kind of statement that commits, and of effect, once: where no earlier shape has it.

    Between two of them nothing lasting happens, so these are the states in which a run can be left.
    """
    known: set[str] = set()
    for each in SHAPES:
        kinds = {label: number for number, label in reversed(list(enumerate(points(each), 1)))}
        if each == shape:
            for kind, number in sorted(kinds.items(), key=lambda item: item[1]):
                if kind not in known and kind.startswith(_DURABLE):
                    yield Experiment(shape, (Crash(number, "after"),))
            return
        known.update(kinds)


def random_pairs(points: Points, dice: random.Random, shapes: Sequence[str] = tuple(SHAPES)) -> Iterator[Experiment]:
    """Two deaths, the second while the first is recovered from; endlessly."""
    while True:
        shape = dice.choice(shapes)
        yield Experiment(shape, _deaths(dice, len(points(shape)), 2))


def random_programs(points: Points, seed: int) -> Iterator[Experiment]:
    """The programs of `seed`, `seed + 1`, …, each with one or two deaths; endlessly, and the same for a seed."""
    for number in count(seed):
        shape, dice = f"{PROGRAM}-{number}", random.Random(number)  # noqa: S311 - dice, no secret
        yield Experiment(shape, _deaths(dice, len(points(shape)), dice.randint(1, 2)))


def _deaths(dice: random.Random, points: int, deaths: int) -> tuple[Crash, ...]:
    """Where a run was taken up again it has fewer points left; the first of them are those of the recovery itself."""
    reach = (points, points if dice.random() < FAR else min(points, RECOVERY_POINTS))
    return tuple(Crash(dice.randint(1, within), dice.choice(WHEN)) for within in reach[:deaths])

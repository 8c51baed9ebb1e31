"""What an experiment is, and its name."""

from dataclasses import dataclass
from typing import Literal

from wakeful.domain.errors import ConfigurationError

__all__ = ["WHEN", "Crash", "Experiment", "When", "parse_experiment"]

When = Literal["before", "after"]
WHEN: tuple[When, When] = ("before", "after")


@dataclass(frozen=True, slots=True)
class Crash:
    """SIGKILL of the executing process at its `point`-th statement or effect, counted from 1."""

    point: int
    when: When

    def __str__(self) -> str:
        return f"{self.point}:{self.when}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A run of one shape, and a crash for each process that executes it but the last."""

    shape: str
    crashes: tuple[Crash, ...] = ()

    def __str__(self) -> str:
        return ":".join([self.shape, "+".join(map(str, self.crashes))]) if self.crashes else self.shape


def parse_experiment(name: str) -> Experiment:
    """The experiment that `str` gave this name. Raises ConfigurationError."""
    shape, _, places = name.partition(":")
    crashes = []
    for place in places.split("+") if places else ():
        point, _, word = place.partition(":")
        when = next((each for each in WHEN if each == word), None)
        if not point.isdigit() or when is None:
            raise ConfigurationError(f"{name!r} names no experiment: write SHAPE:POINT:before, or :after")
        crashes.append(Crash(int(point), when))
    return Experiment(shape, tuple(crashes))

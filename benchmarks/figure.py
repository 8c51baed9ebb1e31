"""A figure: its key, its limit, and the function that measures it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.bench import Bench

__all__ = ["Figure", "Limit", "Measured", "at_least", "at_most", "counted", "of_rounds"]


@dataclass(frozen=True, slots=True)
class Limit:
    """The bound that a figure is to reach."""

    bound: float
    upper: bool

    def reached(self, value: float) -> bool:
        return value <= self.bound if self.upper else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.upper else '>='} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure as measured: the median and the extremes of its rounds, and what it was made of."""

    value: float
    low: float
    high: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """The sides of a ratio, or what else belongs to the figure; units in the names."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`measure` is named as the key; its docstring says what is compared with what."""

    measure: "Callable[[Bench], Awaitable[Measured]]"
    limit: Limit | None = None

    @property
    def key(self) -> str:
        return self.measure.__name__

    @property
    def about(self) -> str:
        return " ".join((self.measure.__doc__ or "").split())


def at_least(bound: float) -> Limit:
    return Limit(bound, upper=False)


def at_most(bound: float) -> Limit:
    return Limit(bound, upper=True)


def of_rounds(values: list[float], **parts: float) -> Measured:
    """The median of several rounds."""
    return Measured(median(values), min(values), max(values), parts)


def counted(value: float, **parts: float) -> Measured:
    """A figure that one measurement gives."""
    return Measured(value, value, value, parts)

"""What every sweep is made of: bounded batches over candidates, each handled in a transaction of its own."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, ClassVar, Protocol, TypeVar

import structlog

from wakeful.domain.errors import ConfigurationError, Unavailable
from wakeful.domain.ports.wakeups import Wakeups
from wakeful.domain.states import PriorityClass

__all__ = ["Counts", "Observe", "Sweep", "SweepConfig", "each", "nobody", "report", "wake_all"]

_log = structlog.get_logger(__name__)

Candidate = TypeVar("Candidate", bound=Hashable)


class Counts(Protocol):
    """A frozen dataclass of integers: what one pass of a sweep did."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Sweep(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def interval(self) -> timedelta: ...

    async def run_once(self) -> Any:
        """One pass; safe at any time, in any number of processes at once. Returns its counts."""
        ...


Observe = Callable[[object], None]
"""Told the counts after every batch: what tests wait for; `nobody` in production."""


def nobody(_counts: object) -> None:
    return


@dataclass(frozen=True, slots=True)
class SweepConfig:
    """How often a sweep looks, and how much it does at most in one pass: `batch` times `batches`."""

    interval: timedelta = timedelta(seconds=1)
    batch: int = 100
    batches: int = 10

    def __post_init__(self) -> None:
        if self.interval <= timedelta(0):
            raise ConfigurationError(f"a sweep's interval must be longer than 0, not {self.interval}")
        if self.batch < 1 or self.batches < 1:
            raise ConfigurationError(f"a sweep needs batches of at least 1, not {self.batches} of {self.batch}")


async def each(
    find: Callable[[int], Awaitable[Sequence[Candidate]]],
    handle: Callable[[Candidate], Awaitable[None]],
    config: SweepConfig,
    *,
    name: str,
    after_batch: Callable[[], None],
) -> int:
    """Handle every candidate once; how many raised. A candidate that raises stops neither its batch nor the sweep,
    but an unreachable database does."""
    seen: set[Candidate] = set()
    failed = 0
    for _ in range(config.batches):
        # What failed stays a candidate and comes first again: look past it.
        found = await find(config.batch + len(seen))
        fresh = [candidate for candidate in found if candidate not in seen][: config.batch]
        for candidate in fresh:
            try:
                await handle(candidate)
            except Unavailable:
                raise
            except Exception:
                failed += 1
                _log.exception("sweep.candidate_failed", sweep=name, candidate=repr(candidate))
        seen.update(fresh)
        if fresh:
            after_batch()
        if len(fresh) < config.batch:
            break
    return failed


def report(name: str, counts: Counts) -> None:
    """One line when there is anything to say."""
    values = {field.name: getattr(counts, field.name) for field in fields(counts)}
    if nonzero := {key: value for key, value in values.items() if value}:
        _log.info("sweep.done", sweep=name, **nonzero)


def wake_all(wakeups: Wakeups) -> None:
    """What a sweep puts back into the queue may be of any class."""
    for priority in PriorityClass:
        wakeups.wake(priority)

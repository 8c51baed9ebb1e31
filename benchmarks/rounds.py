"""Alternating rounds: what is compared is measured side by side, so that a busy machine disturbs both sides."""

from collections.abc import Awaitable, Callable
from statistics import median

from benchmarks.figure import Measured, of_rounds
from benchmarks.progress import Progress

__all__ = ["alternate"]

Side = Callable[[], Awaitable[float]]


async def alternate(ours: Side, theirs: Side, *, rounds: int, progress: Progress, names: tuple[str, str]) -> Measured:
    """The median of the rounds' ratios, ours by theirs. Each round measures both, and the order changes with each."""
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        if number % 2 == 0:
            first = await ours()
            second = await theirs()
        else:
            second = await theirs()
            first = await ours()
        pairs.append((first, second))
        progress.step(f"{first / second:.2f}")
    parts = {names[0]: median(pair[0] for pair in pairs), names[1]: median(pair[1] for pair in pairs)}
    return of_rounds([first / second for first, second in pairs], **parts)

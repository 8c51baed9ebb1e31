"""Every figure, in the order in which they are measured and shown."""

from benchmarks import append, claims, recovery, steps, throughput, waiting, wakeup
from benchmarks.figure import Figure

__all__ = ["FIGURES"]

FIGURES: tuple[Figure, ...] = (
    *append.FIGURES,
    *claims.FIGURES,
    *wakeup.FIGURES,
    *steps.FIGURES,
    *throughput.FIGURES,
    *waiting.FIGURES,
    *recovery.FIGURES,
)

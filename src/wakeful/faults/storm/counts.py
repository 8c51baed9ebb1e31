"""What landed."""

from dataclasses import dataclass, field

__all__ = ["StormCounts"]


@dataclass(slots=True)
class StormCounts:
    """Each counted when it hit something."""

    kills: int = 0
    """SIGKILL of workers that executed runs."""
    pauses: int = 0
    """Workers with runs stopped for longer than a lease."""
    drains: int = 0
    """SIGTERM of workers."""
    scheduler_kills: int = 0
    database_restarts: int = 0
    database_kills: int = 0
    """SIGKILL of the postmaster."""
    cuts: int = 0
    stalls: int = 0
    black_holes: int = 0
    delays: int = 0
    answers_lost: int = 0
    broker_flushes: int = 0
    broker_stops: int = 0
    spurious_wakeups: int = 0
    checkpoints_deleted: int = 0
    runs: int = 0
    runs_hit: int = 0
    uncertain: int = 0
    recovery_seconds: list[float] = field(default_factory=list)
    """From SIGKILL to the run's next execution, by the database's clock."""

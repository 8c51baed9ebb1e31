"""How runs are executed: limits with reasons."""

from dataclasses import dataclass
from datetime import timedelta

from wakeful.domain.tools import RetryPolicy

__all__ = ["ExecutionSettings"]


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """Limits of execution; the defaults are those of the documentation."""

    inline_payload_bytes: int = 256 * 1024
    """Text beyond this becomes an artifact: jsonb is parsed inside the session's row lock."""
    model_retry: RetryPolicy = RetryPolicy(
        attempts=5, first_delay=timedelta(milliseconds=500), max_delay=timedelta(seconds=60)
    )
    cancel_grace: timedelta = timedelta(seconds=1)
    """How long a cancelled tool may clean up before it is left behind."""
    database_retry_max: timedelta = timedelta(seconds=1)
    """The longest pause between two attempts to reach the database again."""

"""Pauses between attempts inside a step: exponential with full jitter."""

import random
from datetime import timedelta

from wakeful.domain.tools import RetryPolicy

__all__ = ["delay"]


def delay(policy: RetryPolicy, failed_attempts: int, *, at_least_seconds: float | None = None) -> timedelta:
    """The pause after `failed_attempts` (from 1): uniform between nothing and the doubled first delay, capped.
    A provider's own wish (`retry-after`) is the least, still capped by the policy's longest pause."""
    ceiling = min(policy.first_delay * 2 ** (failed_attempts - 1), policy.max_delay)
    pause = random.uniform(0.0, ceiling.total_seconds())  # noqa: S311 - jitter, no secret
    return min(timedelta(seconds=max(pause, at_least_seconds or 0.0)), policy.max_delay)

"""How each older payload version becomes the next one.

An upcaster is pure and total: it takes every payload its version ever had, reads no clock, setting or database, leaves
its argument as it is, and never invents a value: what its version did not record becomes an explicit None.
"""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["UPCASTERS", "Upcaster", "chain"]

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _model_response_completed_1(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "tool_call_count_before_turn": None}


UPCASTERS: Mapping[tuple[str, int], Upcaster] = {
    ("model.response.completed", 1): _model_response_completed_1,
}
"""By event type and the version they start from; each leads to the next version."""


def chain(event_type: str, current: int) -> tuple[Upcaster, ...]:
    """The upcasters from version 1 on. Raises LookupError for a version from which nothing leads on: a payload model
    may not get a new version without one."""
    missing = [version for version in range(1, current) if (event_type, version) not in UPCASTERS]
    if missing:
        raise LookupError(f"no upcaster of {event_type} from version {missing[0]} to {missing[0] + 1}")
    return tuple(UPCASTERS[event_type, version] for version in range(1, current))

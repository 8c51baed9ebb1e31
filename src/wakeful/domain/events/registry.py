"""Which payload model stands for a stored (type, version), and how older versions become today's.

Upcasters are pure and total: they never read a clock, a setting or the database, and never invent a
value; what an older version did not record becomes an explicit None.
"""

from collections.abc import Callable
from typing import Any

from wakeful.domain.errors import UnknownEventVersion
from wakeful.domain.events import runs, turns
from wakeful.domain.events.envelope import Payload

__all__ = ["CURRENT_VERSIONS", "HISTORY_TYPES", "UnknownPayload", "decode", "payload_type"]

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class UnknownPayload(Payload):
    """An event type this code has no model for (another product's, or a retired one): kept, never interpreted."""

    TYPE = "unknown"
    stored_type: str
    data: dict[str, Any]


def _models() -> dict[str, type[Payload]]:
    found: dict[str, type[Payload]] = {}
    for module in (runs, turns):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Payload) and "TYPE" in vars(value):
                found[value.TYPE] = value
    return found


_MODELS = _models()
CURRENT_VERSIONS: dict[str, int] = {name: model.VERSION for name, model in _MODELS.items()}
HISTORY_TYPES: frozenset[str] = frozenset(name for name, model in _MODELS.items() if model.HISTORY)


def _model_response_1_to_2(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "tool_call_count_before_turn": None}


_UPCASTERS: dict[tuple[str, int], Upcaster] = {
    ("model.response.completed", 1): _model_response_1_to_2,
}


def payload_type(event_type: str) -> type[Payload] | None:
    """The current payload model of a type, None when this code has none."""
    return _MODELS.get(event_type)


def decode(event_type: str, version: int, payload: dict[str, Any], *, event: object = "?") -> Payload:
    """The payload in today's shape. Raises UnknownEventVersion for a version newer than this code."""
    model = _MODELS.get(event_type)
    if model is None:
        return UnknownPayload(stored_type=event_type, data=payload)
    if version > model.VERSION:
        raise UnknownEventVersion(event, event_type, version, model.VERSION)
    for step in range(version, model.VERSION):
        payload = _UPCASTERS[event_type, step](payload)
    return model.model_validate(payload)

"""Which payload model stands for a stored (type, version)."""

from typing import Any

from pydantic import ValidationError

from wakeful.domain.errors import UnknownEventVersion, UnreadableEvent
from wakeful.domain.events import runs, turns
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.upcasters import chain

__all__ = ["CURRENT_VERSIONS", "HISTORY_TYPES", "UnknownPayload", "decode", "payload_type"]


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


_CHAINS = {name: chain(name, version) for name, version in CURRENT_VERSIONS.items()}


def payload_type(event_type: str) -> type[Payload] | None:
    """The current payload model of a type, None when this code has none."""
    return _MODELS.get(event_type)


def decode(event_type: str, version: int, payload: dict[str, Any], *, event: object = "?") -> Payload:
    """The payload in today's shape; `payload` stays as it is.

    Raises UnknownEventVersion for a version newer than this code, and UnreadableEvent for a payload that is none of
    its version. Nothing is partly decoded.
    """
    model = _MODELS.get(event_type)
    if model is None:
        return UnknownPayload(stored_type=event_type, data=payload)
    if version > model.VERSION:
        raise UnknownEventVersion(event, event_type, version, model.VERSION)
    for upcast in _CHAINS[event_type][version - 1 :]:
        payload = upcast(payload)
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        # Where it is wrong, and never what stands there.
        places = sorted({".".join(str(part) for part in found["loc"]) or "$" for found in error.errors()})
        raise UnreadableEvent(event, event_type, version, places) from error

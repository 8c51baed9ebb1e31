"""Making what user code throws and returns safe to store and to show."""

from typing import Any

from pydantic_core import to_jsonable_python

from wakeful.domain.errors import InvalidPayload
from wakeful.domain.payloads import Repaired, describe, repair

__all__ = ["describe", "storable"]


def storable(value: Any) -> Repaired:
    """`value` as JSON that PostgreSQL can hold; objects without a JSON form become their type's name.
    Raises InvalidPayload when it is nested too deeply or refers to itself."""
    try:
        plain = to_jsonable_python(value, fallback=_name, bytes_mode="base64", inf_nan_mode="constants")
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"the value has no JSON form: {type(error).__name__}") from error
    return repair(plain)


def _name(value: Any) -> str:
    return f"<{type(value).__name__}>"

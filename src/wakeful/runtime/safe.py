"""Making what user code throws and returns safe to store and to show."""

from typing import Any

from pydantic_core import to_jsonable_python

from wakeful.domain.errors import InvalidPayload
from wakeful.domain.payloads import Repaired, repair, repair_text

__all__ = ["describe", "storable"]

_MAX_MESSAGE_CHARACTERS = 500


def describe(error: BaseException) -> str:
    """Type and message of any exception, short and storable, also when its `__str__` raises."""
    try:
        text = str(error)
    except BaseException:
        text = "(its message cannot be shown)"
    name = type(error).__name__
    return repair_text(f"{name}: {text}" if text else name)[:_MAX_MESSAGE_CHARACTERS]


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

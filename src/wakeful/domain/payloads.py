"""The one boundary that everything passes before it can enter an event payload.

PostgreSQL's jsonb refuses NUL and lone surrogates, overflows its stack on deep nesting, and parses
inside the session's row lock. So values are checked here, before a transaction opens: what a client
submits is refused with the place named; what models and tools return is repaired and counted.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from wakeful.domain.errors import InvalidPayload

__all__ = ["MAX_DEPTH", "Repaired", "check", "describe", "repair", "repair_text"]

MAX_DEPTH = 64
"""Levels of nesting. Real tool arguments stay under ten; jsonb's own limit depends on the server's stack."""

_BROKEN = re.compile("[\x00\ud800-\udfff]")
_MAX_INTEGER_DIGITS = 1000
_REPLACEMENT = "\ufffd"
_MAX_DESCRIPTION_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Repaired:
    """A storable value, and how many characters or values had to be replaced to make it so."""

    value: Any
    replaced: int


def repair_text(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD."""
    return _BROKEN.sub(_REPLACEMENT, text)


def describe(error: BaseException) -> str:
    """Type and message of any exception, short and storable, also when its `__str__` raises."""
    try:
        text = str(error)
    except BaseException:
        text = "(its message cannot be shown)"
    name = type(error).__name__
    return repair_text(f"{name}: {text}" if text else name)[:_MAX_DESCRIPTION_CHARACTERS]


def check(value: Any) -> Any:
    """`value`, if it can be stored as it is. Raises InvalidPayload naming the first place that cannot."""
    _walk(value, "$", 0, repairing=False)
    return value


def repair(value: Any) -> Repaired:
    """`value` made storable: broken characters to U+FFFD, NaN and infinities to null, objects that are no
    JSON to their type's name. Raises InvalidPayload only for nesting deeper than MAX_DEPTH."""
    repaired, replaced = _walk(value, "$", 0, repairing=True)
    return Repaired(repaired, replaced)


def _walk(value: Any, path: str, depth: int, *, repairing: bool) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise InvalidPayload(f"nested deeper than {MAX_DEPTH} levels", path=path[:80])
    match value:
        case None | bool():
            return value, 0
        case str():
            return _text(value, path, repairing=repairing)
        case int():
            return _integer(value, path, repairing=repairing)
        case float():
            return _number(value, path, repairing=repairing)
        case dict():
            return _mapping(value, path, depth, repairing=repairing)
        case list() | tuple():
            pairs = [_walk(v, f"{path}[{i}]", depth + 1, repairing=repairing) for i, v in enumerate(value)]
            return [p[0] for p in pairs], sum(p[1] for p in pairs)
        case _:
            if not repairing:
                raise InvalidPayload(f"a {type(value).__name__} is no JSON value", path=path)
            return f"<{type(value).__name__}>", 1


def _text(value: str, path: str, *, repairing: bool) -> tuple[str, int]:
    found = _BROKEN.search(value)
    if found is None:
        return value, 0
    if not repairing:
        kind = "NUL" if found.group() == "\x00" else "a lone surrogate"
        raise InvalidPayload(f"text contains {kind} at character {found.start()}: remove it", path=path)
    return _BROKEN.subn(_REPLACEMENT, value)


def _integer(value: int, path: str, *, repairing: bool) -> tuple[Any, int]:
    if abs(value).bit_length() <= _MAX_INTEGER_DIGITS * 3:
        return int(value), 0
    if not repairing:
        raise InvalidPayload("an integer has more than about 1,000 digits", path=path)
    return None, 1


def _number(value: float, path: str, *, repairing: bool) -> tuple[Any, int]:
    if math.isfinite(value):
        # JSON text of -0.0 does not survive jsonb: say 0.0 before the database does.
        return value + 0.0, 0
    if not repairing:
        raise InvalidPayload("NaN and infinities are no JSON numbers", path=path)
    return None, 1


def _mapping(value: dict[Any, Any], path: str, depth: int, *, repairing: bool) -> tuple[dict[str, Any], int]:
    result: dict[str, Any] = {}
    total = 0
    for key, item in value.items():
        if not isinstance(key, str):
            if not repairing:
                raise InvalidPayload(f"an object key is a {type(key).__name__}, not text", path=path)
            total += 1
        name, replaced = _text(str(key), path, repairing=repairing)
        child, inner = _walk(item, f"{path}.{name[:40]}", depth + 1, repairing=repairing)
        result[name] = child
        total += replaced + inner
    return result, total

"""One text for one JSON value, so that equal requests and equal arguments have equal hashes.

Sorted keys, no blanks, no NaN: RFC 8785's idea for values that already passed `wakeful.domain.payloads`.
"""

import hashlib
import json
from typing import Any

__all__ = ["canonical_json", "sha256_hex"]


def canonical_json(value: Any) -> str:
    """The canonical text of a JSON value. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_hex(value: Any) -> str:
    """The SHA-256 of the canonical text, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()

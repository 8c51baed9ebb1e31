"""Addresses without their secrets, for messages and printed settings."""

import re

__all__ = ["redacted"]

_URL_PASSWORD = re.compile(r"(?<=://)([^@/?#\s]*?):[^@/\s]*(?=@)")
# libpq's keyword form, and the query parameters that URLs may carry instead.
_KEYWORD = re.compile(r"(?i)\b(password|sslpassword|passwd|secret|token)(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)")


def redacted(text: str) -> str:
    """`text` with every password in a URL or a connection string replaced by `***`."""
    return _KEYWORD.sub(r"\1\2***", _URL_PASSWORD.sub(r"\1:***", text))

"""Text in pieces, for providers that have it all at once."""

import re

from wakeful.domain.content import Content
from wakeful.domain.models import OnDelta

__all__ = ["stream"]

_PIECE = re.compile(r"\S+\s*|\s+")


async def stream(content: Content, on_delta: OnDelta | None) -> None:
    """Tell `on_delta` the text word by word; content that is no text has no pieces."""
    if on_delta is None or not isinstance(content, str):
        return
    for piece in _PIECE.findall(content):
        await on_delta(piece)

"""Port: session history as it is read: stored entries, and whatever the log holds behind their watermark."""

from typing import Protocol

from wakeful.domain.history import Entry
from wakeful.domain.scopes import SessionRef

__all__ = ["History"]


class History(Protocol):
    async def read(
        self,
        session: SessionRef,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[Entry]:
        """Entries between two places (their `sequence`), in order, as of everything committed; at most the first
        `limit`, or with `newest` the last. An unknown session reads as empty.

        Costs as much as the entries asked for and what no projection has seen yet, however long the session is.
        Nothing depends on how far the projection got: only the cost does.
        """
        ...

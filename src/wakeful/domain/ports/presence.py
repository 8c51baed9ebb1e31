"""Port: which workers are there, told by what ends with them.

A worker's heartbeat connection carries a mark that the database takes away the moment the connection ends. A mark that
was there and is gone means a lost connection, and only that: whether the worker is dead is judged by whoever watches
(`wakeful.scheduler.deaths`). Where a pooler stands between, there are no marks, and leases alone decide.
"""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

__all__ = ["Presence", "PresenceReader", "mark_of"]


def mark_of(owner: UUID) -> int:
    """The mark of a lease owner, 32 bits. Two owners with one mark count as there while either is."""
    return owner.int & 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Presence:
    """The marks that were there at one moment."""

    connection: int
    """Another number is another connection: between the two anything may have happened to the server."""
    marks: frozenset[int]


class PresenceReader(Protocol):
    async def look(self) -> Presence | None:
        """Read the marks, and nothing else: no mark is ever tried or taken. None where none can be seen, because the
        connection does not reach PostgreSQL itself. Errors: Unavailable; the next look has another connection."""
        ...

    async def close(self) -> None:
        """Safe to call twice."""
        ...

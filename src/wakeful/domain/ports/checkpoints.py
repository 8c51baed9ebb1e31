"""Port: reading and losing checkpoints. They are written by appends, under the lease."""

from typing import Protocol

from wakeful.domain.checkpoints import Checkpoint
from wakeful.domain.scopes import RunRef

__all__ = ["Checkpoints"]


class Checkpoints(Protocol):
    async def latest(self, run: RunRef) -> Checkpoint | None:
        """The newest one whose chain reaches a full one, rebuilt; None when there is none."""
        ...

    async def drop(self, run: RunRef, *, newest: int | None = None) -> int:
        """Delete a live run's `newest` checkpoints, or all; how many went. Costs time, not information."""
        ...

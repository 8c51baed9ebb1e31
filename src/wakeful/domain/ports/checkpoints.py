"""Port: reading and losing checkpoints. They are written by appends, under the lease."""

from typing import Protocol

from wakeful.domain.checkpoints import Checkpoint, NewCheckpoint
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import RunRef

__all__ = ["Checkpoints"]


class Checkpoints(Protocol):
    async def write(self, lease: Lease, checkpoint: NewCheckpoint) -> int:
        """Write one outside an append, guarded by the lease; its number. Raises Fenced."""
        ...

    async def latest(self, run: RunRef) -> Checkpoint | None: ...

    async def drop(self, run: RunRef, *, newest: int | None = None) -> int:
        """Delete a live run's `newest` checkpoints, or all; how many went. Costs time, not information."""
        ...

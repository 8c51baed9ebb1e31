"""Checkpoints in memory."""

from wakeful.domain.checkpoints import Checkpoint
from wakeful.domain.scopes import RunRef
from wakeful.persistence.memory.codec import load_checkpoint
from wakeful.persistence.memory.records import Records, run_key

__all__ = ["MemoryCheckpoints"]


class MemoryCheckpoints:
    """See `wakeful.domain.ports.checkpoints`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def latest(self, run: RunRef) -> Checkpoint | None:
        with self._records.unit():
            return load_checkpoint(run, self._records.checkpoints.get(run_key(run)) or ())

    async def drop(self, run: RunRef, *, newest: int | None = None) -> int:
        with self._records.unit():
            known = self._records.checkpoints.get(run_key(run)) or ()
            kept = () if newest is None else known[: max(0, len(known) - newest)]
            self._records.checkpoints.put(run_key(run), kept)
            return len(known) - len(kept)

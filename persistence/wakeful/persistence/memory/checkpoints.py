"""Checkpoints in memory."""

from wakeful.domain.checkpoints import Checkpoint, NewCheckpoint
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import RunRef
from wakeful.persistence.memory.appending import now_in, session_of
from wakeful.persistence.memory.codec import json_text, load_checkpoint
from wakeful.persistence.memory.holding import add_checkpoint, held
from wakeful.persistence.memory.records import Records, run_key

__all__ = ["MemoryCheckpoints"]


class MemoryCheckpoints:
    """See `wakeful.domain.ports.checkpoints`. Every checkpoint kept here is a full one."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def write(self, lease: Lease, checkpoint: NewCheckpoint) -> int:
        json_text(checkpoint.state.model_dump(mode="json"))
        with self._records.unit():
            run = held(self._records, lease)
            last_sequence = session_of(self._records, run.ref.session).last_sequence
            return add_checkpoint(self._records, run, checkpoint, last_sequence, now_in(self._records, run.ref.session))

    async def latest(self, run: RunRef) -> Checkpoint | None:
        with self._records.unit():
            known = self._records.checkpoints.get(run_key(run)) or ()
            return load_checkpoint(run, known[-1]) if known else None

    async def drop(self, run: RunRef, *, newest: int | None = None) -> int:
        with self._records.unit():
            known = self._records.checkpoints.get(run_key(run)) or ()
            kept = () if newest is None else known[: max(0, len(known) - newest)]
            self._records.checkpoints.put(run_key(run), kept)
            return len(known) - len(kept)

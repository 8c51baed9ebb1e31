"""Housekeeping in memory: submit keys and the sweepers' ticks."""

from datetime import datetime, timedelta
from uuid import UUID

from wakeful.persistence.memory.records import Records
from wakeful.persistence.memory.submitting import key_expired

__all__ = ["MemoryHousekeeping"]


class MemoryHousekeeping:
    """See `wakeful.domain.ports.sweeps`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def expire_keys(self, limit: int, *, now: datetime | None = None) -> int:
        with self._records.unit():
            moment = now or self._records.clock()
            expired = [key for key, record in self._records.keys.items() if key_expired(self._records, record, moment)][
                :limit
            ]
            for key in expired:
                self._records.keys.delete(key)
            return len(expired)

    async def delete_orphaned_bytes(self, limit: int) -> int:
        return 0  # bytes in memory end with the process

    async def tick(self, sweep: str, owner: UUID) -> None:
        with self._records.unit():
            self._records.ticks.put(sweep, self._records.clock())

    async def last_tick(self, sweep: str) -> timedelta | None:
        with self._records.unit():
            ticked = self._records.ticks.get(sweep)
            return None if ticked is None else self._records.clock() - ticked

"""Every port in memory, over one set of records."""

from wakeful.persistence.memory.checkpoints import MemoryCheckpoints
from wakeful.persistence.memory.event_log import MemoryEventLog
from wakeful.persistence.memory.leases import MemoryLeaseKeeper
from wakeful.persistence.memory.records import Clock, Records, system_clock
from wakeful.persistence.memory.run_queue import MemoryRunQueue
from wakeful.persistence.memory.sessions import MemorySessions

__all__ = ["MemoryStore"]


class MemoryStore:
    """A store for tests and for one process: every guarantee of the ports except surviving that process.

    `clock` returns aware datetimes and takes the place of the database's clock. Methods may be called from any
    thread; no lock is held while anything but memory is waited for.
    """

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self._records = Records(clock)
        self.log = MemoryEventLog(self._records)
        self.queue = MemoryRunQueue(self._records)
        self.checkpoints = MemoryCheckpoints(self._records)
        self.sessions = MemorySessions(self._records)

    async def open(self) -> None:
        """Nothing to open: it is there."""

    async def close(self) -> None:
        """What is stored stays until the store is dropped."""

    def lease_keeper(self) -> MemoryLeaseKeeper:
        return MemoryLeaseKeeper(self._records)

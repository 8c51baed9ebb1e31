"""Every port in memory, over one set of records."""

from wakeful.domain.ports.artifacts import ArtifactBytes, Artifacts
from wakeful.domain.ports.checkpoints import Checkpoints
from wakeful.domain.ports.event_hints import EventHints, NoEventHints
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.ports.history import History
from wakeful.domain.ports.leases import LeaseKeeper
from wakeful.domain.ports.projections import Projections
from wakeful.domain.ports.run_control import RunControl
from wakeful.domain.ports.run_queue import RunQueue
from wakeful.domain.ports.sessions import RunReader, Sessions
from wakeful.domain.ports.sweeps import ChildSweeps, Housekeeping, RunSweeps
from wakeful.persistence.memory.artifacts import MemoryArtifactBytes, MemoryArtifacts
from wakeful.persistence.memory.checkpoints import MemoryCheckpoints
from wakeful.persistence.memory.child_sweeps import MemoryChildSweeps
from wakeful.persistence.memory.event_log import MemoryEventLog
from wakeful.persistence.memory.history import MemoryHistory
from wakeful.persistence.memory.housekeeping import MemoryHousekeeping
from wakeful.persistence.memory.leases import MemoryLeaseKeeper
from wakeful.persistence.memory.projections import MemoryProjections
from wakeful.persistence.memory.records import Clock, Records, system_clock
from wakeful.persistence.memory.run_control import MemoryRunControl
from wakeful.persistence.memory.run_queue import MemoryRunQueue
from wakeful.persistence.memory.run_reader import MemoryRunReader
from wakeful.persistence.memory.run_sweeps import MemoryRunSweeps
from wakeful.persistence.memory.sessions import MemorySessions

__all__ = ["MemoryStore"]


class MemoryStore:
    """A store for tests and for one process: every guarantee of the ports except surviving that process.

    `clock` returns aware datetimes and takes the place of the database's clock. `artifact_bytes` keeps
    large payloads, in memory unless given. Methods may be called from any thread; no lock is held while anything
    but memory is waited for.
    """

    def __init__(self, *, clock: Clock = system_clock, artifact_bytes: ArtifactBytes | None = None) -> None:
        self._records = Records(clock)
        self.log: EventLog = MemoryEventLog(self._records)
        self.queue: RunQueue = MemoryRunQueue(self._records)
        self.control: RunControl = MemoryRunControl(self._records)
        self.runs: RunReader = MemoryRunReader(self._records)
        self.sessions: Sessions = MemorySessions(self._records)
        self.checkpoints: Checkpoints = MemoryCheckpoints(self._records)
        self.artifacts: Artifacts = MemoryArtifacts(self._records, artifact_bytes or MemoryArtifactBytes())
        self.run_sweeps: RunSweeps = MemoryRunSweeps(self._records)
        self.child_sweeps: ChildSweeps = MemoryChildSweeps(self._records)
        self.housekeeping: Housekeeping = MemoryHousekeeping(self._records)
        self.projections: Projections = MemoryProjections(self._records)
        self.history: History = MemoryHistory(self._records)
        self.event_hints: EventHints = NoEventHints()

    async def open(self) -> None:
        """Nothing to open: it is there."""

    async def close(self) -> None:
        """What is stored stays until the store is dropped."""

    def lease_keeper(self) -> LeaseKeeper:
        return MemoryLeaseKeeper(self._records)

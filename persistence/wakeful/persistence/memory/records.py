"""What the memory adapters keep, and the transaction they keep it under.

Stored values are frozen and are replaced whole; what is mutable inside them is copied on the way in and on the
way out, so that no caller shares anything with the store.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Generic, TypeVar
from uuid import UUID

from wakeful.domain.invocations import Invocation
from wakeful.domain.projections import Document
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef, SessionRef
from wakeful.domain.sessions import Session
from wakeful.persistence.memory.saved import ArtifactRecord, KeyRecord, SavedCheckpoint, SavedEvent, SavedState

__all__ = [
    "ArtifactRecord",
    "Clock",
    "KeyRecord",
    "Records",
    "Rows",
    "SavedCheckpoint",
    "SavedEvent",
    "run_key",
    "system_clock",
]

K = TypeVar("K")
V = TypeVar("V")

Clock = Callable[[], datetime]
RunKey = tuple[UUID, UUID]
"""(tenant, run): a run's id is unique within its tenant."""


def system_clock() -> datetime:
    return datetime.now(UTC)


def run_key(run: RunRef) -> RunKey:
    return run.tenant_id, run.run_id


class Rows(Generic[K, V]):
    """A table: a mapping whose changes are journalled until the unit of work ends."""

    def __init__(self, journal: list[Callable[[], object]]) -> None:
        self._rows: dict[K, V] = {}
        self._journal = journal

    def put(self, key: K, value: V) -> None:
        self._remember(key)
        self._rows[key] = value

    def delete(self, key: K) -> None:
        """A missing key counts as deleted."""
        self._remember(key)
        self._rows.pop(key, None)

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._rows))

    def values(self) -> list[V]:
        return list(self._rows.values())

    def items(self) -> list[tuple[K, V]]:
        return list(self._rows.items())

    def _remember(self, key: K) -> None:
        if key in self._rows:
            before = self._rows[key]
            self._journal.append(lambda: self._rows.__setitem__(key, before))
        else:
            self._journal.append(lambda: self._rows.pop(key, None))


class Records:
    """Every table, under one lock that is held for memory work only.

    The lock gives what row locks and commits give in a database: units of work one after the other, and nothing
    of a failed one. It is a thread lock because heartbeats come from a thread of their own.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.RLock()
        self._depth = 0
        self._journal: list[Callable[[], object]] = []
        self.sessions: Rows[SessionRef, Session] = Rows(self._journal)
        self.runs: Rows[RunKey, Run] = Rows(self._journal)
        self.invocations: Rows[tuple[UUID, UUID], Invocation] = Rows(self._journal)
        self.calls_of_run: Rows[RunKey, tuple[UUID, ...]] = Rows(self._journal)
        self.checkpoints: Rows[RunKey, tuple[SavedCheckpoint, ...]] = Rows(self._journal)
        self.keys: Rows[tuple[UUID, UUID, str], KeyRecord] = Rows(self._journal)
        self.artifacts: Rows[tuple[UUID, UUID], ArtifactRecord] = Rows(self._journal)
        self.ticks: Rows[str, datetime] = Rows(self._journal)
        self.active: Rows[SessionRef, UUID] = Rows(self._journal)
        self.unfinished: Rows[RunKey, None] = Rows(self._journal)
        self.event_sequences: Rows[tuple[SessionRef, UUID], int] = Rows(self._journal)
        self.watermarks: Rows[tuple[UUID, UUID, str, int], tuple[int, int]] = Rows(self._journal)
        self.states: Rows[tuple[UUID, UUID, str, int], SavedState] = Rows(self._journal)
        self.served: Rows[tuple[UUID, UUID, str], int] = Rows(self._journal)
        self.documents: Rows[tuple[UUID, UUID, str, int], Mapping[str, Document]] = Rows(self._journal)
        self.derived: Rows[tuple[UUID, str], UUID] = Rows(self._journal)
        self._logs: dict[SessionRef, list[SavedEvent]] = {}

    @contextmanager
    def unit(self) -> Iterator[None]:
        """All of it or nothing: on an exception everything changed inside is put back. Units nest into one."""
        with self._lock:
            self._depth += 1
            try:
                yield
            except BaseException:
                if self._depth == 1:
                    for undo in reversed(self._journal):
                        undo()
                raise
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._journal.clear()

    def put_run(self, run: Run) -> None:
        """Write a run, and keep who is active in its session and which runs sweeps have to look at."""
        key = run_key(run.ref)
        self.runs.put(key, run)
        if not run.status.terminal:
            self.active.put(run.ref.session, run.ref.run_id)
        elif self.active.get(run.ref.session) == run.ref.run_id:
            self.active.delete(run.ref.session)
        if run.status.terminal and (run.parent is None or run.result_delivered_at is not None):
            self.unfinished.delete(key)
        elif key not in self.unfinished:
            self.unfinished.put(key, None)

    def current_runs(self) -> list[Run]:
        """Runs that are live or whose result is not delivered, over all tenants."""
        return [self.runs_at(key) for key in self.unfinished]

    def runs_at(self, key: RunKey) -> Run:
        run = self.runs.get(key)
        if run is None:  # pragma: no cover - the index names stored runs only
            raise KeyError(key)
        return run

    def put_invocation(self, invocation: Invocation) -> None:
        tenant_id = invocation.run.tenant_id
        if (tenant_id, invocation.id) not in self.invocations:
            key = run_key(invocation.run)
            self.calls_of_run.put(key, (*(self.calls_of_run.get(key) or ()), invocation.id))
        self.invocations.put((tenant_id, invocation.id), invocation)

    def calls(self, run: RunRef) -> list[Invocation]:
        """The run's calls in (step, position) order."""
        ids = self.calls_of_run.get(run_key(run)) or ()
        found = [self.invocations.get((run.tenant_id, call)) for call in ids]
        return sorted((call for call in found if call is not None), key=lambda call: (call.step, call.position))

    def log(self, session: SessionRef) -> list[SavedEvent]:
        return self._logs.get(session, [])

    def add_event(self, session: SessionRef, event: SavedEvent) -> None:
        events = self._logs.setdefault(session, [])
        events.append(event)
        self._journal.append(events.pop)
        self.event_sequences.put((session, event.event_id), event.sequence)

"""Lease, allowance, deadline and wait sweeps in memory."""

from collections.abc import Collection
from datetime import datetime

from wakeful.domain import sweeping
from wakeful.domain.edges import Locked
from wakeful.domain.invocations import Invocation
from wakeful.domain.ports.presence import mark_of
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.ports.sweeps import ExpiredLease, ExpiredWait, HeldLease
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.persistence.memory.edge import locked, take
from wakeful.persistence.memory.records import Records

__all__ = ["MemoryRunSweeps"]

_ANSWERABLE = frozenset({InvocationStatus.AWAITING_INPUT, InvocationStatus.AWAITING_APPROVAL})


class MemoryRunSweeps:
    """See `wakeful.domain.ports.sweeps`; what each sweep does is decided by `wakeful.domain.sweeping`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def expired_leases(self, limit: int, *, now: datetime | None = None) -> list[ExpiredLease]:
        with self._records.unit():
            moment = now or self._records.clock()
            expired = [
                (run.lease_expires_at, run.ref.run_id, ExpiredLease(run.ref, run.lease_owner, run.lease_epoch))
                for run in self._live()
                if run.lease_owner is not None and run.lease_expires_at is not None and run.lease_expires_at <= moment
            ]
            return [lease for *_, lease in sorted(expired, key=lambda found: found[:2])[:limit]]

    async def reclaim(
        self,
        expired: ExpiredLease,
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        cause: str = "lease_expired",
        now: datetime | None = None,
    ) -> RunStatus | None:
        with self._records.unit():
            seen = locked(self._records, expired.run)
            if seen is None:
                return None
            at = self._records.clock()
            edge = sweeping.reclaim(
                seen, expired.owner, expired.epoch, max_attempts=max_attempts, cause=cause, now=now or at, at=at
            )
            return take(self._records, seen, edge).status if edge.applied else None

    async def held_by(self, marks: Collection[int]) -> list[HeldLease]:
        with self._records.unit():
            return [
                HeldLease(run.ref, run.lease_owner, run.lease_epoch, run.lease_expires_at)
                for run in self._live()
                if run.lease_owner is not None
                and run.lease_expires_at is not None
                and mark_of(run.lease_owner) in marks
            ]

    async def hopeless(
        self, limit: int, *, max_attempts: int = DEFAULT_MAX_ATTEMPTS, now: datetime | None = None
    ) -> list[RunRef]:
        with self._records.unit():
            moment = now or self._records.clock()
            found = [
                run.ref
                for run in self._live()
                if sweeping.hopeless_code(run, max_attempts=max_attempts, now=moment) is not None
            ]
            return found[:limit]

    async def fail_hopeless(
        self, run: RunRef, *, max_attempts: int = DEFAULT_MAX_ATTEMPTS, now: datetime | None = None
    ) -> bool:
        with self._records.unit():
            seen = locked(self._records, run)
            if seen is None:
                return False
            edge = sweeping.fail_hopeless(seen, max_attempts=max_attempts, now=now or self._records.clock())
            return take(self._records, seen, edge).applied

    async def expired_waits(self, limit: int, *, now: datetime | None = None) -> list[ExpiredWait]:
        with self._records.unit():
            moment = now or self._records.clock()
            waits = [
                (call.expires_at, call.id, ExpiredWait(run.ref, call.id))
                for run in self._live()
                for call in self._records.calls(run.ref)
                if _expired(call, moment)
            ]
            return [wait for *_, wait in sorted(waits, key=lambda found: found[:2])[:limit]]

    async def expire_wait(self, wait: ExpiredWait, *, now: datetime | None = None) -> bool:
        with self._records.unit():
            seen = locked(self._records, wait.run)
            if seen is None or not _knows(seen, wait):
                return False
            edge = sweeping.expire_wait(seen, wait.call, now=now or self._records.clock())
            return take(self._records, seen, edge).applied

    def _live(self) -> list[Run]:
        return [run for run in self._records.current_runs() if not run.status.terminal]


def _expired(call: Invocation, moment: datetime) -> bool:
    return call.status in _ANSWERABLE and call.expires_at is not None and call.expires_at <= moment


def _knows(seen: Locked, wait: ExpiredWait) -> bool:
    return any(call.id == wait.call for call in seen.calls)

"""RunSweeps on PostgreSQL: expired leases, hopeless runs, questions nobody answered."""

from collections.abc import Callable, Collection
from datetime import datetime
from uuid import UUID

from wakeful.domain import sweeping
from wakeful.domain.edges import Edge, Locked
from wakeful.domain.errors import NotFound
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.ports.sweeps import ExpiredLease, ExpiredWait, HeldLease
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import RunStatus
from wakeful.persistence.acting import lock, write
from wakeful.persistence.candidates import EXPIRED_LEASES, EXPIRED_WAITS, HELD_BY, HOPELESS
from wakeful.persistence.unit_of_work import AcrossTenants, Units

__all__ = ["PostgresRunSweeps"]

Decide = Callable[[Locked, datetime], Edge]
"""What was read under the locks, and the database's time after them."""


class PostgresRunSweeps:
    """See `wakeful.domain.ports.sweeps`. A run's session is locked before the run, as every append does: the other
    way round sweeps and appends deadlock."""

    def __init__(self, units: Units, across: AcrossTenants) -> None:
        self._units, self._across = units, across

    async def expired_leases(self, limit: int, *, now: datetime | None = None) -> list[ExpiredLease]:
        async with self._across.begin() as session:
            found = await session.execute(EXPIRED_LEASES, {"limit": limit, "now": now})
            return [
                ExpiredLease(RunRef(row.tenant_id, row.session_id, row.id), row.lease_owner, row.lease_epoch)
                for row in found
            ]

    async def reclaim(
        self,
        expired: ExpiredLease,
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        cause: str = "lease_expired",
        now: datetime | None = None,
    ) -> RunStatus | None:
        def decide(locked: Locked, clock: datetime) -> Edge:
            return sweeping.reclaim(
                locked,
                expired.owner,
                expired.epoch,
                max_attempts=max_attempts,
                cause=cause,
                now=now or clock,
                at=clock,
            )

        edge = await self._handle(expired.run, decide)
        return edge.status if edge is not None and edge.applied else None

    async def held_by(self, marks: Collection[int]) -> list[HeldLease]:
        async with self._across.begin() as session:
            found = await session.execute(HELD_BY, {"marks": list(marks)})
            return [
                HeldLease(
                    RunRef(row.tenant_id, row.session_id, row.id),
                    row.lease_owner,
                    row.lease_epoch,
                    row.lease_expires_at,
                )
                for row in found
            ]

    async def hopeless(
        self, limit: int, *, max_attempts: int = DEFAULT_MAX_ATTEMPTS, now: datetime | None = None
    ) -> list[RunRef]:
        async with self._across.begin() as session:
            found = await session.execute(HOPELESS, {"limit": limit, "max_attempts": max_attempts, "now": now})
            return [RunRef(row.tenant_id, row.session_id, row.id) for row in found]

    async def fail_hopeless(
        self, run: RunRef, *, max_attempts: int = DEFAULT_MAX_ATTEMPTS, now: datetime | None = None
    ) -> bool:
        def decide(locked: Locked, clock: datetime) -> Edge:
            return sweeping.fail_hopeless(locked, max_attempts=max_attempts, now=now or clock)

        edge = await self._handle(run, decide)
        return edge is not None and edge.applied

    async def expired_waits(self, limit: int, *, now: datetime | None = None) -> list[ExpiredWait]:
        async with self._across.begin() as session:
            found = await session.execute(EXPIRED_WAITS, {"limit": limit, "now": now})
            return [ExpiredWait(RunRef(row.tenant_id, row.session_id, row.run_id), row.id) for row in found]

    async def expire_wait(self, wait: ExpiredWait, *, now: datetime | None = None) -> bool:
        def decide(locked: Locked, clock: datetime) -> Edge:
            return sweeping.expire_wait(locked, wait.call, now=now or clock)

        edge = await self._handle(wait.run, decide, wait.call)
        return edge is not None and edge.applied

    async def _handle(self, run: RunRef, decide: Decide, call: UUID | None = None) -> Edge | None:
        """One run, one transaction, as its tenant; None when the run is gone."""
        async with self._units.begin(run.tenant_id) as unit:
            try:
                locked = await lock(unit, run, call)
                edge = decide(locked, await unit.runs.clock())
            except NotFound:
                return None
            await write(unit, locked.run, edge)
            return edge

"""Housekeeping on PostgreSQL: keys past their time, and the ticks that say a sweeper is alive."""

from collections import defaultdict
from datetime import datetime, timedelta
from uuid import UUID

from wakeful.persistence.artifact_orphans import ArtifactOrphans
from wakeful.persistence.candidates import EXPIRED_KEYS, LAST_TICK, TICK
from wakeful.persistence.unit_of_work import AcrossTenants, Units

__all__ = ["PostgresHousekeeping"]


class PostgresHousekeeping:
    """See `wakeful.domain.ports.sweeps`."""

    def __init__(self, units: Units, across: AcrossTenants, orphans: ArtifactOrphans | None = None) -> None:
        self._units, self._across, self._orphans = units, across, orphans

    async def expire_keys(self, limit: int, *, now: datetime | None = None) -> int:
        by_tenant: dict[UUID, list[tuple[UUID, str]]] = defaultdict(list)
        async with self._across.begin() as session:
            for row in await session.execute(EXPIRED_KEYS, {"limit": limit, "now": now}):
                by_tenant[row.tenant_id].append((row.principal_id, row.key))
        deleted = 0
        for tenant_id, keys in by_tenant.items():
            async with self._units.begin(tenant_id) as unit:
                deleted += await unit.keys.expire(keys, now)
        return deleted

    async def delete_orphaned_bytes(self, limit: int) -> int:
        return 0 if self._orphans is None else await self._orphans.sweep(limit)

    async def tick(self, sweep: str, owner: UUID) -> None:
        async with self._across.begin() as session:
            await session.execute(TICK, {"sweep": sweep, "owner": owner})

    async def last_tick(self, sweep: str) -> timedelta | None:
        async with self._across.begin() as session:
            age: timedelta | None = await session.scalar(LAST_TICK, {"sweep": sweep})
            return age

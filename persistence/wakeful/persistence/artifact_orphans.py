"""Bytes that no row refers to: left by a crash between bytes and row, or by a session's deletion."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta
from uuid import UUID

from wakeful.persistence.artifact_files import LocalArtifactFiles, StoredFile
from wakeful.persistence.unit_of_work import Units

__all__ = ["GRACE", "ArtifactOrphans"]

GRACE = timedelta(hours=1)
"""Far longer than anything lies between bytes and row."""

_BATCH = 500


class ArtifactOrphans:
    """Sweeps the local store. Looks at the rows only after the files: a row that is there now keeps its bytes."""

    def __init__(self, units: Units, files: LocalArtifactFiles) -> None:
        self._units, self._files = units, files

    async def sweep(self, limit: int, *, grace: timedelta = GRACE) -> int:
        """Delete orphans among the files older than `grace`, at most `limit`; how many went."""
        deleted = 0
        for tenant_id, files in _batches(await self._files.older_than(grace)):
            for orphan in await self._orphans(tenant_id, files):
                if deleted == limit:
                    return deleted
                await self._files.delete(orphan.key)
                deleted += 1
        return deleted

    async def _orphans(self, tenant_id: UUID, files: list[StoredFile]) -> list[StoredFile]:
        async with self._units.begin(tenant_id) as unit:
            known = await unit.artifacts.known([file.artifact_id for file in files])
        return [file for file in files if file.artifact_id not in known]


def _batches(files: Iterable[StoredFile]) -> Iterator[tuple[UUID, list[StoredFile]]]:
    by_tenant: dict[UUID, list[StoredFile]] = defaultdict(list)
    for file in files:
        by_tenant[file.tenant_id].append(file)
    for tenant_id, owned in by_tenant.items():
        for start in range(0, len(owned), _BATCH):
            yield tenant_id, owned[start : start + _BATCH]

"""Artifacts in memory: rows that know of bytes, and a byte store of the process's own."""

import hashlib
from uuid import UUID

from wakeful.domain.content import ArtifactRef
from wakeful.domain.errors import NotFound
from wakeful.domain.ids import new_id
from wakeful.domain.ports.artifacts import ArtifactBytes
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.memory.appending import session_of
from wakeful.persistence.memory.records import Records
from wakeful.persistence.memory.saved import ArtifactRecord

__all__ = ["MemoryArtifactBytes", "MemoryArtifacts"]


class MemoryArtifactBytes:
    """Bytes by key. Durable for as long as the process is."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        self._bytes[key] = bytes(data)

    async def get(self, key: str) -> bytes:
        try:
            return self._bytes[key]
        except KeyError:
            raise NotFound("bytes", key) from None

    async def delete(self, key: str) -> None:
        self._bytes.pop(key, None)


class MemoryArtifacts:
    """See `wakeful.domain.ports.artifacts`. Bytes are written and read with no lock held."""

    def __init__(self, records: Records, store: ArtifactBytes) -> None:
        self._records = records
        self._bytes = store

    async def store(
        self, session: SessionRef, data: bytes, *, media_type: str, origin: str, run_id: UUID | None = None
    ) -> ArtifactRef:
        with self._records.unit():
            session_of(self._records, session)
        artifact_id, sha256 = new_id(), hashlib.sha256(data).hexdigest()
        key = f"{session.tenant_id}/{session.session_id}/{artifact_id}/{sha256}"
        await self._bytes.put(key, data)
        with self._records.unit():
            session_of(self._records, session)
            record = ArtifactRecord(session, key, sha256, media_type, origin, run_id)
            self._records.artifacts.put((session.tenant_id, artifact_id), record)
        return ArtifactRef(artifact_id=artifact_id, sha256=sha256, size_bytes=len(data), media_type=media_type)

    async def fetch(self, session: SessionRef, ref: ArtifactRef) -> bytes:
        with self._records.unit():
            record = self._records.artifacts.get((session.tenant_id, ref.artifact_id))
        if record is None or record.session != session or record.sha256 != ref.sha256:
            raise NotFound("artifact", ref.artifact_id)
        data = await self._bytes.get(record.key)
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise NotFound("artifact with these bytes", ref.artifact_id)
        return data

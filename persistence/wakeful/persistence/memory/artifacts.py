"""Artifacts in memory: rows that know of bytes, and a byte store of the process's own."""

import hashlib
from uuid import UUID

from wakeful.domain.content import ArtifactRef
from wakeful.domain.errors import NotFound
from wakeful.domain.ids import new_id
from wakeful.domain.ports.artifacts import ArtifactBytes
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.artifacts import preview_of, storage_key
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
        ref = ArtifactRef(
            artifact_id=new_id(),
            sha256=hashlib.sha256(data).hexdigest(),
            size_bytes=len(data),
            media_type=media_type,
            preview=preview_of(data, media_type),
        )
        key = storage_key(session, ref.artifact_id, ref.sha256)
        await self._bytes.put(key, data)
        with self._records.unit():
            session_of(self._records, session)
            record = ArtifactRecord(session, key, ref.sha256, media_type, origin, run_id)
            self._records.artifacts.put((session.tenant_id, ref.artifact_id), record)
        return ref

    async def fetch(self, session: SessionRef, ref: ArtifactRef) -> bytes:
        with self._records.unit():
            record = self._records.artifacts.get((session.tenant_id, ref.artifact_id))
        if record is None or record.session != session or record.sha256 != ref.sha256:
            raise NotFound("artifact", ref.artifact_id)
        data = await self._bytes.get(record.key)
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise NotFound("intact artifact", ref.artifact_id)
        return data

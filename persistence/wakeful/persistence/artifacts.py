"""Artifacts on PostgreSQL and a byte store: rows in one, bytes in the other, bytes first."""

import hashlib
from uuid import UUID

from wakeful.domain.content import ArtifactRef
from wakeful.domain.errors import NotFound, SessionGone
from wakeful.domain.ids import new_id
from wakeful.domain.payloads import repair_text
from wakeful.domain.ports.artifacts import ArtifactBytes
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.unit_of_work import Units

__all__ = ["PREVIEW_CHARACTERS", "PostgresArtifacts", "preview_of", "storage_key"]

PREVIEW_CHARACTERS = 500
_PREVIEW_BYTES = PREVIEW_CHARACTERS * 4
_LOWEST_TRUST = "external_untrusted"
"""Trust is inherited, never assigned by whoever produces the bytes; what nobody vouched for gets the lowest."""


class PostgresArtifacts:
    """See `wakeful.domain.ports.artifacts`. A crash between bytes and row leaves bytes that nothing refers to: the
    orphan sweep's."""

    def __init__(self, units: Units, files: ArtifactBytes) -> None:
        self._units, self._files = units, files

    async def store(
        self, session: SessionRef, data: bytes, *, media_type: str, origin: str, run_id: UUID | None = None
    ) -> ArtifactRef:
        ref = ArtifactRef(
            artifact_id=new_id(),
            sha256=hashlib.sha256(data).hexdigest(),
            size_bytes=len(data),
            media_type=media_type,
            preview=preview_of(data, media_type),
        )
        key = storage_key(session, ref.artifact_id, ref.sha256)
        async with self._units.begin(session.tenant_id) as unit:
            # Bytes for a session that is gone would only become orphans.
            if await unit.sessions.find(session.session_id) is None:
                raise SessionGone(session.session_id)
        await self._files.put(key, data)
        async with self._units.begin(session.tenant_id) as unit:
            await unit.sessions.share(session.session_id)
            await unit.artifacts.insert(
                session, ref, storage_key=key, origin=origin, trust=_LOWEST_TRUST, run_id=run_id
            )
        return ref

    async def fetch(self, session: SessionRef, ref: ArtifactRef) -> bytes:
        async with self._units.begin(session.tenant_id) as unit:
            found = await unit.artifacts.find(session.session_id, ref.artifact_id)
        if found is None or found[0].sha256 != ref.sha256:
            raise NotFound("artifact", ref.artifact_id)
        data = await self._files.get(found[1])
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise NotFound("intact artifact", ref.artifact_id)
        return data


def storage_key(session: SessionRef, artifact_id: UUID, sha256: str) -> str:
    """tenant / session / artifact / sha256: made of the platform's own ids, so two artifacts never share bytes."""
    return f"{session.tenant_id}/{session.session_id}/{artifact_id}/{sha256}"


def preview_of(data: bytes, media_type: str) -> str:
    """The first characters of text, nothing of anything else."""
    if not media_type.startswith("text/") and "json" not in media_type:
        return ""
    return repair_text(data[:_PREVIEW_BYTES].decode("utf-8", "ignore"))[:PREVIEW_CHARACTERS]

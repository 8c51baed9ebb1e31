"""Port: bytes kept outside the database, and the rows that know of them."""

from typing import Protocol
from uuid import UUID

from wakeful.domain.content import ArtifactRef
from wakeful.domain.scopes import SessionRef

__all__ = ["ArtifactBytes", "Artifacts"]


class ArtifactBytes(Protocol):
    """A byte store; keys are tenant / session / artifact id / sha256, made by the platform, never by callers."""

    async def put(self, key: str, data: bytes) -> None:
        """Durable on return. The same key again is the same bytes."""
        ...

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        ...

    async def delete(self, key: str) -> None:
        """Missing bytes count as deleted."""
        ...


class Artifacts(Protocol):
    async def store(
        self, session: SessionRef, data: bytes, *, media_type: str, origin: str, run_id: UUID | None = None
    ) -> ArtifactRef:
        """Write the bytes, then the row; bytes without a row are swept as orphans."""
        ...

    async def fetch(self, session: SessionRef, ref: ArtifactRef) -> bytes:
        """Raises NotFound; the hash is verified."""
        ...

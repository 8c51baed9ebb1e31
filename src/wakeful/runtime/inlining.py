"""Keeping rows small: what is too large to stand in an event becomes an artifact before the transaction opens."""

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from wakeful.domain.content import ArtifactRef, Content
from wakeful.domain.errors import InvalidPayload
from wakeful.domain.ports.artifacts import Artifacts
from wakeful.domain.scopes import SessionRef

__all__ = ["Inliner"]

_PREVIEW_CHARACTERS = 200


@dataclass(slots=True)
class Inliner:
    """Decides for the values of one event: together they inline at most `limit_bytes`."""

    artifacts: Artifacts | None
    session: SessionRef
    run_id: UUID | None
    limit_bytes: int
    _used: int = field(default=0, init=False)

    async def content(self, value: Content) -> Content:
        """`value`, or a reference to it when it would not fit any more."""
        if value is None or isinstance(value, ArtifactRef):
            return value
        return await (self.text(value) if isinstance(value, str) else self.json(value))

    async def text(self, value: str) -> str | ArtifactRef:
        data = value.encode()
        if self._fits(len(data)):
            return value
        return await self._store(data, "text/plain; charset=utf-8", value)

    async def json(self, value: Any) -> Any:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        data = text.encode()
        if self._fits(len(data)):
            return value
        return await self._store(data, "application/json", text)

    def _fits(self, size: int) -> bool:
        if self._used + size > self.limit_bytes:
            return False
        self._used += size
        return True

    async def _store(self, data: bytes, media_type: str, text: str) -> ArtifactRef:
        if self.artifacts is None:
            raise InvalidPayload(f"{len(data)} bytes are too large to inline, and no artifact store is configured")
        ref = await self.artifacts.store(
            self.session, data, media_type=media_type, origin="PAYLOAD", run_id=self.run_id
        )
        return ref.model_copy(update={"preview": text[:_PREVIEW_CHARACTERS]})

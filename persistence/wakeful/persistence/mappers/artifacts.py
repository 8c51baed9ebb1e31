"""Artifacts: row to domain, domain to row. A row is a mapping by column name."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from wakeful.domain.content import ArtifactRef
from wakeful.domain.scopes import SessionRef

__all__ = ["artifact_of", "artifact_values"]


def artifact_of(row: Mapping[str, Any]) -> tuple[ArtifactRef, str]:
    """The reference (whose preview only the log holds) and the storage key."""
    ref = ArtifactRef(
        artifact_id=row["id"], sha256=row["sha256"], size_bytes=row["size_bytes"], media_type=row["media_type"]
    )
    return ref, row["storage_key"]


def artifact_values(
    session: SessionRef, ref: ArtifactRef, *, storage_key: str, origin: str, trust: str, run_id: UUID | None
) -> dict[str, Any]:
    return {
        "tenant_id": session.tenant_id,
        "id": ref.artifact_id,
        "session_id": session.session_id,
        "run_id": run_id,
        "origin": origin,
        "trust": trust,
        "media_type": ref.media_type,
        "sha256": ref.sha256,
        "size_bytes": ref.size_bytes,
        "storage_key": storage_key,
    }

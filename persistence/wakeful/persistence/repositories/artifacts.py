"""Artifact rows of one tenant."""

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from wakeful.domain.content import ArtifactRef
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.mappers.artifacts import artifact_of, artifact_values
from wakeful.persistence.repositories.base import first, table_of
from wakeful.persistence.tables import ArtifactRow

__all__ = ["ArtifactRepository"]

ARTIFACTS = table_of(ArtifactRow)


class ArtifactRepository:
    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self._session, self._tenant_id = session, tenant_id

    async def insert(
        self, session: SessionRef, ref: ArtifactRef, *, storage_key: str, origin: str, trust: str, run_id: UUID | None
    ) -> None:
        values = artifact_values(session, ref, storage_key=storage_key, origin=origin, trust=trust, run_id=run_id)
        await self._session.execute(insert(ARTIFACTS).values(values))

    async def find(self, session_id: UUID, artifact_id: UUID) -> tuple[ArtifactRef, str] | None:
        """The reference and the storage key of an artifact of this session."""
        statement = select(ARTIFACTS).where(
            ARTIFACTS.c.tenant_id == self._tenant_id,
            ARTIFACTS.c.session_id == session_id,
            ARTIFACTS.c.id == artifact_id,
        )
        row = await first(self._session, statement)
        return None if row is None else artifact_of(row)

    async def known(self, artifact_ids: Collection[UUID]) -> frozenset[UUID]:
        """Which of these have a row."""
        statement = select(ARTIFACTS.c.id).where(
            ARTIFACTS.c.tenant_id == self._tenant_id, ARTIFACTS.c.id.in_(artifact_ids)
        )
        return frozenset(await self._session.scalars(statement))

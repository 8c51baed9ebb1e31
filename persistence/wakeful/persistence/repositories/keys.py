"""Idempotency keys of one tenant."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

__all__ = ["IdempotencyKeyRepository"]

# The key never goes before its run has ended. A row that a submit holds is left for the next pass.
_EXPIRE = text("""
WITH gone AS MATERIALIZED (
    SELECT k.tenant_id, k.principal_id, k.key
      FROM wakeful.idempotency_keys AS k
     WHERE k.tenant_id = :tenant
       AND (k.principal_id, k.key) IN (SELECT * FROM unnest(CAST(:principals AS uuid[]), CAST(:keys AS text[])))
       AND k.expires_at <= coalesce(:now, statement_timestamp())
       AND NOT EXISTS (SELECT FROM wakeful.runs AS r
                        WHERE r.tenant_id = k.tenant_id AND r.id = k.run_id
                          AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
       FOR UPDATE OF k SKIP LOCKED)
DELETE FROM wakeful.idempotency_keys AS k
 USING gone
 WHERE k.tenant_id = gone.tenant_id AND k.principal_id = gone.principal_id AND k.key = gone.key
RETURNING k.key
""")


class IdempotencyKeyRepository:
    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self._session, self._tenant_id = session, tenant_id

    async def expire(self, keys: Sequence[tuple[UUID, str]], now: datetime | None) -> int:
        """Delete those of `keys` (principal and key) that have expired and whose run has ended; how many went."""
        deleted = await self._session.execute(
            _EXPIRE,
            {
                "tenant": self._tenant_id,
                "principals": [principal for principal, _ in keys],
                "keys": [key for _, key in keys],
                "now": now,
            },
        )
        return len(deleted.all())

"""Claiming: one statement as the worker role, committed before anything is executed."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from wakeful.domain.runs import Claim
from wakeful.domain.states import PriorityClass
from wakeful.persistence.connections import Connection, HotPool
from wakeful.persistence.errors import Translated
from wakeful.persistence.mappers.claims import claim_of
from wakeful.persistence.roles import SCOPE_SETTING, WORKER_SCOPE

__all__ = ["CLAIM", "claim", "claim_parameters"]

CLAIM = files("wakeful.persistence").joinpath("claim.sql").read_bytes()
_SCOPE = f"SELECT set_config('{SCOPE_SETTING}', '{WORKER_SCOPE}', true)".encode()


def claim_parameters(
    owner: UUID,
    *,
    capacity: Mapping[PriorityClass, int],
    agents: Sequence[str],
    lease: timedelta,
    suspects: int,
    max_attempts: int,
    now: datetime | None,
) -> dict[str, Any]:
    eligible = sorted((priority, slots) for priority, slots in capacity.items() if slots > 0)
    return {
        "owner": owner,
        "classes": [int(priority) for priority, _ in eligible],
        "slots": [slots for _, slots in eligible],
        "agents": sorted(set(agents)),
        "lease": lease,
        "suspects": str(suspects),
        "max_attempts": str(max_attempts),
        "now": now,
    }


async def claim(pool: HotPool, parameters: Mapping[str, Any], *, scoped: bool) -> list[Claim]:
    """Raises Unavailable, and OutcomeUnknown when the answer was lost: the next heartbeat then finds the leases."""
    with Translated(write=True):
        async with pool.connection() as connection:
            rows = await _rows(connection, parameters, scoped=scoped)
    return [claim_of(row, parameters["owner"]) for row in rows]


async def _rows(connection: Connection, parameters: Mapping[str, Any], *, scoped: bool) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        if scoped:
            # Single-role mode: one implicit transaction, so the scope ends with it.
            async with connection.pipeline():
                await connection.execute(_SCOPE)
                await cursor.execute(CLAIM, parameters)
        else:
            await cursor.execute(CLAIM, parameters)
        return await cursor.fetchall()

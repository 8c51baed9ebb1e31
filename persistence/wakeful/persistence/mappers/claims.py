"""Claims: the worker's view of a run to the domain. A row is a mapping by column name."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from wakeful.domain.runs import Claim, Lease
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import PriorityClass

__all__ = ["claim_of"]


def claim_of(row: Mapping[str, Any], owner: UUID) -> Claim:
    return Claim(
        lease=Lease(RunRef(row["tenant_id"], row["session_id"], row["id"]), owner, row["lease_epoch"]),
        agent=row["agent"],
        agent_version=row["agent_version"],
        priority=PriorityClass(row["priority"]),
        attempts=row["attempts"],
        suspect=row["suspect"],
        waited_seconds=row["waited_seconds"],
    )

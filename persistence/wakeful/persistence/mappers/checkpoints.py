"""Checkpoints: row to domain. A row is a mapping by column name; the way in is `mappers.appends`."""

from collections.abc import Mapping
from typing import Any

from wakeful.domain.checkpoints import Link

__all__ = ["link_of"]


def link_of(row: Mapping[str, Any]) -> Link:
    return Link(
        run_id=row["run_id"],
        number=row["number"],
        epoch=row["epoch"],
        base_number=row["base_number"],
        trigger=row["trigger"],
        last_event_sequence=row["last_event_sequence"],
        state=row["state"],
        created_at=row["created_at"],
    )

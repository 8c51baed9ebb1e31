"""Checkpoints: row to domain. A row is a mapping by column name; the way in is `mappers.appends`."""

from collections.abc import Mapping
from typing import Any

from wakeful.domain.checkpoints import Checkpoint, CheckpointState

__all__ = ["checkpoint_of"]


def checkpoint_of(row: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        run_id=row["run_id"],
        number=row["number"],
        epoch=row["epoch"],
        kind=row["kind"],
        base_number=row["base_number"],
        trigger=row["trigger"],
        last_event_sequence=row["last_event_sequence"],
        state=CheckpointState.model_validate(row["state"]),
        created_at=row["created_at"],
    )

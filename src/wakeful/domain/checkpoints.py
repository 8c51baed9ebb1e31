"""Checkpoints: disposable shortcuts. Losing any of them costs time, never information."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue

__all__ = ["BudgetState", "Checkpoint", "CheckpointState", "NewCheckpoint", "PendingBatch"]


class _State(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class BudgetState(_State):
    """Where the counters stood. `counted_through_step` is the tool-usage watermark: its batch is counted."""

    step: int = 0
    tool_call_count: int = 0
    token_count: int = 0
    counted_through_step: int = 0


class PendingBatch(_State):
    """The calls of a turn that fit the budget and may run, as fitted when the turn was committed."""

    step: int
    positions: list[int]


class CheckpointState(_State):
    """What a checkpoint holds. The conversation is a reference: session history through `last_event_sequence`."""

    budget: BudgetState = BudgetState()
    pending: PendingBatch | None = None
    continuation: JsonValue = None
    """The provider's opaque continuation, encrypted; dropped on resume behind a newer turn or without the key."""
    provider: str | None = None
    summary: str | None = None
    """The text that stands for everything up to `summary_through`."""
    summary_through: int | None = None


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint to write under the lease. `last_event_sequence` None means: through this very append."""

    trigger: str
    state: CheckpointState
    last_event_sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as stored; `number` counts from 1 within the run."""

    run_id: UUID
    number: int
    epoch: int
    kind: str
    base_number: int | None
    trigger: str
    last_event_sequence: int
    state: CheckpointState
    created_at: datetime

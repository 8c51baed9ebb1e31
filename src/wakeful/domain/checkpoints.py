"""Checkpoints: disposable shortcuts. Losing any of them costs time, never information.

A full one holds its whole state; a delta what changed since its base, the checkpoint before it. Full are those of the
triggers in FULL_TRIGGERS, the one after DELTAS_MAX deltas, and whatever finds its base gone. A chain that does not
reach a full one counts as absent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue

__all__ = [
    "DELTAS_MAX",
    "FULL_TRIGGERS",
    "Base",
    "BudgetState",
    "Checkpoint",
    "CheckpointState",
    "Link",
    "NewCheckpoint",
    "PendingBatch",
    "changes",
    "latest_of",
    "whole",
]

FULL_TRIGGERS = frozenset({"run_start", "compaction", "terminal", "browser_auth_resume"})
DELTAS_MAX = 64
"""Bounds what a resume reads, and what a live run keeps."""


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
class Base:
    """What a delta builds on."""

    number: int
    state: CheckpointState


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint to write under the lease. `last_event_sequence` None means: through this very append.

    With `base` a delta, if that is the run's newest checkpoint when it is written; else full. A full one removes
    every older one of the run, in the same transaction.
    """

    trigger: str
    state: CheckpointState
    last_event_sequence: int | None = None
    base: Base | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint rebuilt through its deltas; `number` counts from 1 within the run."""

    run_id: UUID
    number: int
    epoch: int
    base_number: int | None
    trigger: str
    last_event_sequence: int
    state: CheckpointState
    created_at: datetime
    deltas: int
    """How many lie between it and the full one that its chain begins with, itself included; 0 for a full one."""

    @property
    def kind(self) -> str:
        return "delta" if self.deltas else "full"


@dataclass(frozen=True, slots=True)
class Link:
    """A checkpoint as stored: `state` is whole without a base, else what changed since the base."""

    run_id: UUID
    number: int
    epoch: int
    base_number: int | None
    trigger: str
    last_event_sequence: int
    state: Mapping[str, Any]
    created_at: datetime


def whole(state: CheckpointState) -> dict[str, Any]:
    """A full checkpoint's state as stored: what is as in a run that has just begun is left out."""
    return state.model_dump(mode="json", exclude_defaults=True)


def changes(before: CheckpointState, after: CheckpointState) -> dict[str, Any]:
    """A delta's state as stored: the fields that differ; of the budget, its counters that differ."""
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    counters = {name: value for name, value in new["budget"].items() if value != old["budget"][name]}
    changed = {name: value for name, value in new.items() if name != "budget" and value != old[name]}
    return changed | ({"budget": counters} if counters else {})


def latest_of(links: Iterable[Link]) -> Checkpoint | None:
    """The newest checkpoint whose chain reaches a full one. `links` are a run's, in any order."""
    known = {link.number: link for link in links}
    for number in sorted(known, reverse=True):
        chain = _chain(known, number)
        if chain is not None:
            return _rebuilt(chain)
    return None


def _chain(known: Mapping[int, Link], number: int) -> list[Link] | None:
    """From the full one to this one; None where a base is gone."""
    chain = [known[number]]
    while (base := chain[-1].base_number) is not None:
        if base not in known:
            return None
        chain.append(known[base])
    return chain[::-1]


def _rebuilt(chain: list[Link]) -> Checkpoint:
    state: dict[str, Any] = {}
    for link in chain:
        state = {**state, **link.state, "budget": {**state.get("budget", {}), **link.state.get("budget", {})}}
    newest = chain[-1]
    return Checkpoint(
        run_id=newest.run_id,
        number=newest.number,
        epoch=newest.epoch,
        base_number=newest.base_number,
        trigger=newest.trigger,
        last_event_sequence=newest.last_event_sequence,
        state=CheckpointState.model_validate(state),
        created_at=newest.created_at,
        deltas=len(chain) - 1,
    )

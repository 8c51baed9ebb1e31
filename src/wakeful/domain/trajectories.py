"""Trajectories as a projection: where each finished run stands in its session, for whoever exports it.

It holds no content. What an export contains, and whether there may be one, is decided when it is made.
"""

from collections.abc import Iterable
from typing import ClassVar

from wakeful.domain.events import HISTORY_TYPES, Event
from wakeful.domain.events.runs import RunCancelled, RunCompleted, RunFailed, RunQueued
from wakeful.domain.projections import Projection, State
from wakeful.domain.states import RunStatus

__all__ = ["EXPORT_BUILDER_VERSION", "Trajectories"]

EXPORT_BUILDER_VERSION = "1"
"""The version of what would build the export document."""

_ENDED = {
    RunCompleted.TYPE: RunStatus.COMPLETED,
    RunFailed.TYPE: RunStatus.FAILED,
    RunCancelled.TYPE: RunStatus.CANCELLED,
}


class Trajectories(Projection):
    """One document per run: its first sequence, and once it has ended the last one, how it ended and the builder's
    version. Its position is the sequence of the end, 0 before that."""

    name: ClassVar[str] = "trajectories"
    types: ClassVar[frozenset[str] | None] = HISTORY_TYPES | {RunQueued.TYPE, *_ENDED}

    def keys(self, event: Event) -> Iterable[str]:
        return () if event.run_id is None else (event.run_id.hex,)

    def apply(self, event: Event, state: State) -> None:
        if event.run_id is None:
            return
        key = event.run_id.hex
        run = state.get(key) or {"first": event.sequence}
        status = _ENDED.get(event.type)
        if status is not None:
            run |= {"last": event.sequence, "status": status.value, "builder_version": EXPORT_BUILDER_VERSION}
        state.put(run, key, position=run.get("last", 0))

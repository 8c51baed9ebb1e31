"""Which edge an actor without a lease takes, and what it writes: pure decisions over what was read under the locks.

The caller holds the locks on session, run and calls (in this order), passes what it read, and writes the `Edge`
it gets back in the same transaction. Deciding on anything read before the locks is the race these rules exclude.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from wakeful.domain.content import Failure
from wakeful.domain.errors import NotFound
from wakeful.domain.events import NewEvent
from wakeful.domain.ids import derived_id
from wakeful.domain.invocations import Invocation, InvocationChange
from wakeful.domain.runs import Run
from wakeful.domain.states import RunStatus

__all__ = [
    "Edge",
    "Locked",
    "answer",
    "approve",
    "approved_event_id",
    "cancel",
    "child_result",
    "deliver",
    "deny",
    "expire_wait",
    "fail_hopeless",
    "hopeless_code",
    "reclaim",
    "resolve",
    "resolved_event_id",
    "unchanged",
]

FIRST_BACKOFF = timedelta(seconds=1)
LONGEST_BACKOFF = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Locked:
    """What was read under the locks: the run, its open calls, and the call acted upon in whatever state it is."""

    run: Run
    calls: Sequence[Invocation]

    def call(self, call: UUID) -> Invocation:
        """Raises NotFound for a call that is not this run's."""
        for candidate in self.calls:
            if candidate.id == call:
                return candidate
        raise NotFound("call", call)


@dataclass(frozen=True, slots=True)
class Edge:
    """What to write in one transaction. `status` is the run's afterwards; without events nothing is written.

    A run that leaves RUNNING gives its lease back; a terminal one is stamped as finished.
    """

    status: RunStatus
    events: tuple[NewEvent, ...] = ()
    changes: tuple[InvocationChange, ...] = ()
    failure: Failure | None = None
    cancel_requested: bool = False
    """Stamp `cancel_requested_at`."""
    crash: dict[str, Any] | None = None
    """Appended to `attempt_failures`; counts one lease expiration and makes the run suspect."""
    delay: timedelta | None = None
    """With QUEUED: `scheduled_for` becomes now plus this. None leaves it as it is."""
    resolved: UUID | None = None
    """Stamp this call's `resolved_at`."""

    @property
    def applied(self) -> bool:
        return bool(self.events)


def unchanged(run: Run) -> Edge:
    """The edge that writes nothing."""
    return Edge(run.status)


def approved_event_id(call: UUID) -> UUID:
    """The id of a call's one approval."""
    return derived_id("approved", call)


def resolved_event_id(call: UUID) -> UUID:
    """The id of an uncertain call's one resolution."""
    return derived_id("resolved", call)

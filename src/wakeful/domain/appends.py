"""One append: events, and the state change they describe, in one short transaction and one round trip."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from wakeful.domain.checkpoints import NewCheckpoint
from wakeful.domain.content import Failure
from wakeful.domain.events import NewEvent
from wakeful.domain.invocations import InvocationChange, NewInvocation
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import SessionRef
from wakeful.domain.states import RunStatus

__all__ = ["Append", "Appended", "RunChange"]


@dataclass(frozen=True, slots=True)
class RunChange:
    """What a holder's append does to its run. Leaving RUNNING gives the lease back in the same transaction."""

    status: RunStatus | None = None
    """None keeps RUNNING. WAITING_* must be what the open calls call for, else the append is refused as Arrived;
    QUEUED is the draining holder's hand-back."""
    started: bool = False
    """Stamp `started_at` and `export_consent`; only with run.started."""
    step: int | None = None
    """A step is committed: also clears the suspicion."""
    tool_call_count: int | None = None
    """Set to the greatest of itself and this: doing it again changes nothing."""
    add_tokens: int = 0
    failure: Failure | None = None
    delay: timedelta | None = None
    """With QUEUED: not claimed before this has passed, by the database's clock."""


@dataclass(frozen=True, slots=True)
class Append:
    """A request to append.

    With `lease`, everything is guarded by (owner, epoch, RUNNING). Without one only events may be given, for
    actors that describe no state change (`run.fenced`). The event ids make it safe to redo after OutcomeUnknown.
    """

    session: SessionRef
    events: tuple[NewEvent, ...]
    lease: Lease | None = None
    run: RunChange | None = None
    proposals: tuple[NewInvocation, ...] = ()
    changes: tuple[InvocationChange, ...] = ()
    checkpoint: NewCheckpoint | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """`sequences` of the events in order; `at` is their database time; `repeated` if they were there already.

    `checkpoint` is the number of the one written with them: None without one, and when they were there already.
    """

    first_sequence: int
    last_sequence: int
    at: datetime
    cancel_requested: bool
    repeated: bool = False
    checkpoint: int | None = None

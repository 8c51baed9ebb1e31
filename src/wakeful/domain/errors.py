"""Every error Wakeful raises, one class per reaction.

```
WakefulError
├── InvalidInput            fix the argument; nothing was changed
│   ├── InvalidPayload      text or JSON that cannot be stored (NUL, depth, size, NaN)
│   └── ConfigurationError  settings, app or server are unusable
├── NotFound                unknown id, or another owner's
│   └── SessionGone         the session was deleted
├── Conflict                the state does not allow it; read it again
│   ├── SessionBusy         the session has an active run
│   ├── SessionClosed
│   ├── IdempotencyConflict the key was used with another body
│   ├── AlreadyAnswered     the call has its one result
│   ├── CallMismatch        another tool or other arguments stand at this position
│   └── RunEnded            the run is terminal
├── Refused                 an append by a lease holder did not apply
│   ├── Fenced              the lease is lost: stop, write nothing more
│   ├── Arrived             what the run would wait for is there: go on
│   └── CancelAsked         the owner asked to cancel: end the run
├── NotAllowed              the role or the policy forbids it
├── Unavailable             the database cannot be reached now
│   └── OutcomeUnknown      the connection ended during COMMIT: redo with the same ids
├── SchemaError             the database is not at the revision this code expects
│   └── UnknownEventVersion newer code wrote the event
├── UnreadableEvent         a stored payload is not what its type and version say
├── ProjectionDefect        a projection's own code broke its contract
├── ProjectionStopped       an event that a projection cannot apply
├── Timeout                 waiting took longer than asked
└── RunFailure              ends the run as FAILED, with a code
    ├── ModelError          TransientModelError is retried inside the step, PermanentModelError is not
    └── BudgetExceeded
```

Messages name ids and what to do; they never hold payloads, addresses with passwords, or secrets.
"""

from uuid import UUID

__all__ = [
    "AlreadyAnswered",
    "Arrived",
    "BudgetExceeded",
    "CallMismatch",
    "CancelAsked",
    "ConfigurationError",
    "Conflict",
    "Fenced",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidPayload",
    "ModelError",
    "NotAllowed",
    "NotFound",
    "OutcomeUnknown",
    "PermanentModelError",
    "ProjectionDefect",
    "ProjectionStopped",
    "Refused",
    "RunEnded",
    "RunFailure",
    "SchemaError",
    "SessionBusy",
    "SessionClosed",
    "SessionGone",
    "Timeout",
    "TransientModelError",
    "Unavailable",
    "UnknownEventVersion",
    "UnreadableEvent",
    "WakefulError",
]


class WakefulError(Exception):
    """The root: catching it catches everything Wakeful raises on purpose."""

    code = "error"


class InvalidInput(WakefulError):
    code = "invalid_input"


class InvalidPayload(InvalidInput):
    """Text or JSON that the log cannot hold; `path` says where in the value."""

    code = "invalid_payload"

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(f"{message} (at {path})")
        self.path = path


class ConfigurationError(InvalidInput):
    code = "configuration"


class NotFound(WakefulError):
    """Unknown, or owned by somebody else: the two are answered alike."""

    code = "not_found"

    def __init__(self, what: str, identifier: object) -> None:
        super().__init__(f"no {what} {identifier}")
        self.what, self.identifier = what, identifier


class SessionGone(NotFound):
    code = "session_gone"

    def __init__(self, session_id: UUID) -> None:
        super().__init__("session", session_id)


class Conflict(WakefulError):
    code = "conflict"


class SessionBusy(Conflict):
    code = "session_busy"

    def __init__(self, session_id: UUID) -> None:
        super().__init__(
            f"session {session_id} has an active run: wait for it, answer it or cancel it, then submit again"
        )
        self.session_id = session_id


class SessionClosed(Conflict):
    code = "session_closed"

    def __init__(self, session_id: UUID) -> None:
        super().__init__(f"session {session_id} is closed: open a new one")
        self.session_id = session_id


class IdempotencyConflict(Conflict):
    code = "idempotency_conflict"

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was used with another request: use a new key for a new request")
        self.key = key


class AlreadyAnswered(Conflict):
    code = "already_answered"

    def __init__(self, call: object) -> None:
        super().__init__(f"call {call} already has its one result")
        self.call = call


class CallMismatch(Conflict):
    """Recovery met another tool or other arguments at a (run, step, position): a defect, never a second row."""

    code = "call_mismatch"


class RunEnded(Conflict):
    code = "run_ended"

    def __init__(self, run_id: UUID, status: str) -> None:
        super().__init__(f"run {run_id} has ended: {status}")
        self.run_id, self.status = run_id, status


class Refused(WakefulError):
    """A holder's append whose guard did not match: everything of it was rolled back."""

    code = "refused"


class Fenced(Refused):
    code = "fenced"

    def __init__(self, run_id: UUID, epoch: int) -> None:
        super().__init__(f"run {run_id}: lease epoch {epoch} is no longer the current one")
        self.run_id, self.epoch = run_id, epoch


class Arrived(Refused):
    code = "arrived"


class CancelAsked(Refused):
    code = "cancel_asked"


class NotAllowed(WakefulError):
    code = "not_allowed"


class Unavailable(WakefulError):
    code = "unavailable"


class OutcomeUnknown(Unavailable):
    """The answer to COMMIT never came. Doing the same write again, with the same ids, is always right."""

    code = "outcome_unknown"


class SchemaError(WakefulError):
    """`current` is None for a database without a Wakeful schema."""

    code = "schema"

    def __init__(self, message: str, *, current: str | None, expected: str) -> None:
        super().__init__(message)
        self.current, self.expected = current, expected


class UnknownEventVersion(SchemaError):
    """An event written by newer code: nothing of it is decoded."""

    code = "unknown_event_version"

    def __init__(self, event: object, event_type: str, version: int, known: int) -> None:
        super().__init__(
            f"event {event}: {event_type} has payload version {version}, this code knows up to {known}: upgrade it",
            current=str(version),
            expected=str(known),
        )


class UnreadableEvent(WakefulError):
    """The log holds what no writer of this type and version has written."""

    code = "unreadable_event"

    def __init__(self, event: object, event_type: str, version: int, places: list[str]) -> None:
        super().__init__(f"event {event}: no {event_type} of payload version {version} (at {', '.join(places)})")
        self.places = places


class ProjectionDefect(WakefulError):
    """A projection's code did what it may not; its state is as it was before the event."""

    code = "projection_defect"


class ProjectionStopped(WakefulError):
    """The state stays where it is; `projection lag` says which event it stands before, and why."""

    code = "projection_stopped"

    def __init__(self, projection: str, scope: UUID) -> None:
        super().__init__(f"projection {projection} of {scope} cannot apply an event: see `wakeful projection lag`")
        self.projection, self.scope = projection, scope


class Timeout(WakefulError):
    code = "timeout"


class RunFailure(WakefulError):
    """Ends the run as FAILED at once; `code` is stored, the message is for people and holds no secret."""

    code = "failure"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class ModelError(RunFailure):
    code = "model_error"


class TransientModelError(ModelError):
    """Worth asking again: overload, rate limit, a broken connection. `retry_after_seconds` is the provider's wish."""

    code = "model_transient"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class PermanentModelError(ModelError):
    code = "model_permanent"


class BudgetExceeded(RunFailure):
    code = "budget_exceeded"

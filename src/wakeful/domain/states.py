"""The state machines: what a run and a tool call may be, and which edges exist.

```
                      ┌────────────── requeued (lease expired, drain, answers) ─────────────┐
                      ▼                                                                     │
  submit ─▶ QUEUED ─claim─▶ RUNNING ─▶ WAITING_APPROVAL | WAITING_INPUT | WAITING_CHILD ────┤
                      │        └────────────────────────────────────────────────────────────┘
                      └─▶ FAILED | CANCELLED            RUNNING ─▶ COMPLETED | FAILED | CANCELLED
```

A terminal run is never reopened.
"""

from enum import IntEnum, StrEnum

__all__ = [
    "AWAITING",
    "TERMINAL_CALLS",
    "TERMINAL_RUNS",
    "WAITING",
    "IdempotencyClass",
    "InvocationStatus",
    "PriorityClass",
    "RunStatus",
    "waiting_status",
]


class RunStatus(StrEnum):
    """Where a run is. Members say who moves it on."""

    QUEUED = "QUEUED"
    """Due at `due_at`; a claim moves it to RUNNING, a cancel to CANCELLED, a sweep to FAILED."""
    RUNNING = "RUNNING"
    """Leased: its holder moves it on, or a sweep after the lease expired."""
    WAITING_INPUT = "WAITING_INPUT"
    """A question to the owner is open; no worker holds it."""
    WAITING_APPROVAL = "WAITING_APPROVAL"
    """A call waits for a person's approval; no worker holds it."""
    WAITING_CHILD = "WAITING_CHILD"
    """A child run has not ended; no worker holds it."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_RUNS


TERMINAL_RUNS = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
WAITING = frozenset({RunStatus.WAITING_INPUT, RunStatus.WAITING_APPROVAL, RunStatus.WAITING_CHILD})


class InvocationStatus(StrEnum):
    """Where one tool call is. Only RUNNING is ambiguous after a crash."""

    REQUESTED = "REQUESTED"
    """Proposed by a committed turn (or approved); nothing was started."""
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    AWAITING_INPUT = "AWAITING_INPUT"
    AWAITING_CHILD = "AWAITING_CHILD"
    RUNNING = "RUNNING"
    """The intent is committed: the effect may or may not have happened."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    REFUSED = "REFUSED"
    """Never started: unknown tool, invalid arguments, over budget, repeated."""
    DENIED = "DENIED"
    CANCELLED = "CANCELLED"
    UNCERTAIN = "UNCERTAIN"
    """Started, and nobody can know whether it happened. Never repeated; a person may resolve it."""

    @property
    def terminal(self) -> bool:
        return self in TERMINAL_CALLS


TERMINAL_CALLS = frozenset(
    {
        InvocationStatus.COMPLETED,
        InvocationStatus.FAILED,
        InvocationStatus.REFUSED,
        InvocationStatus.DENIED,
        InvocationStatus.CANCELLED,
        InvocationStatus.UNCERTAIN,
    }
)
AWAITING = frozenset(
    {InvocationStatus.AWAITING_APPROVAL, InvocationStatus.AWAITING_INPUT, InvocationStatus.AWAITING_CHILD}
)

_WAITING_BY_PRECEDENCE = (
    (InvocationStatus.AWAITING_APPROVAL, RunStatus.WAITING_APPROVAL),
    (InvocationStatus.AWAITING_INPUT, RunStatus.WAITING_INPUT),
    (InvocationStatus.AWAITING_CHILD, RunStatus.WAITING_CHILD),
)


def waiting_status(calls: "frozenset[InvocationStatus] | set[InvocationStatus]") -> RunStatus | None:
    """What a run with these open calls waits for: approval before input before child; None if for nothing."""
    return next((run for call, run in _WAITING_BY_PRECEDENCE if call in calls), None)


class IdempotencyClass(StrEnum):
    """What repeating a tool call would do; decides what recovery may do with one that was RUNNING."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    CONDITIONALLY_IDEMPOTENT = "conditionally_idempotent"
    """Safe to repeat only with the same idempotency key handed to the service."""
    NON_IDEMPOTENT = "non_idempotent"
    """Never repeated automatically: an interrupted call is UNCERTAIN."""

    @property
    def repeatable(self) -> bool:
        """Whether an interrupted call may be executed again (with the same key)."""
        return self is not IdempotencyClass.NON_IDEMPOTENT


class PriorityClass(IntEnum):
    """Who waits for the run; each has capacity of its own, so none starves another."""

    INTERACTIVE = 0
    """A person is waiting: seconds."""
    ASYNC = 10
    """Scheduled or long work: minutes."""
    MAINTENANCE = 20
    """Consolidation, rebuilds, exports: hours."""

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, value: "str | int | PriorityClass") -> "PriorityClass":
        """The class named `interactive`, `async` or `maintenance` (or its number); ValueError otherwise."""
        if isinstance(value, str):
            for member in cls:
                if member.label == value.lower():
                    return member
            raise ValueError(f"unknown priority class {value!r}: use interactive, async or maintenance")
        return cls(value)

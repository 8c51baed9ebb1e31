"""What a forked executor is told, and what it says, as lines of JSON."""

import json
from dataclasses import asdict, dataclass
from uuid import UUID

from wakeful.faults.crashes.experiments import Crash, When

__all__ = ["Order", "Passage", "decode_order", "encode_order"]


@dataclass(frozen=True, slots=True)
class Order:
    """One process's part of an experiment. `recover` is for all but the first: what the process before it held has
    expired, and its backoff has passed."""

    app: str
    dsn: str
    role_prefix: str | None
    tenant: UUID
    session: UUID
    run: UUID
    agent: str
    message: str
    recover: bool
    max_tool_calls: int | None = None
    point: int | None = None
    when: When = "before"
    forked: bool = True
    """In a process of its own; else in the host's, which knows the way then."""

    @property
    def crash(self) -> Crash | None:
        return None if self.point is None else Crash(self.point, self.when)


@dataclass(frozen=True, slots=True)
class Passage:
    """What became of the process: the labels of the points it reached, and how it ended."""

    points: tuple[str, ...]
    killed: bool
    """It was at the point where it should die, and SIGKILL ended it."""
    error: str | None = None
    """It ended in another way than it should have."""


def encode_order(order: Order) -> str:
    return json.dumps(asdict(order), default=str)


def decode_order(line: str) -> Order:
    plain = json.loads(line)
    return Order(**{**plain, **{name: UUID(plain[name]) for name in ("tenant", "session", "run")}})

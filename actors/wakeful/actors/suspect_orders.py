"""What a worker and the process of a suspect say to each other: one JSON object a line."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter

from wakeful.domain.runs import Claim

__all__ = ["Order", "SuspectSpec", "decode", "encode"]

_CLAIM = TypeAdapter(Claim)


@dataclass(frozen=True, slots=True)
class SuspectSpec:
    """How the process of a suspect builds what it needs, since nothing of its parent's can be handed over.

    `target` is `module:function`, called with `settings` (JSON values only) in the child: a context manager that
    yields a `wakeful.actors.suspect_child.SuspectHost`. `preload` names modules that are imported once, before any
    child is forked; they must start no threads and open no connections when imported.
    """

    target: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """One suspect to execute."""

    claim: Claim
    target: str
    settings: Mapping[str, Any]
    lease: timedelta
    heartbeat: timedelta
    trusted_until: float
    """As the worker knows it; the monotonic clock is the machine's, the same in both processes."""

    def to_message(self) -> dict[str, Any]:
        return {
            "claim": _CLAIM.dump_python(self.claim, mode="json"),
            "target": self.target,
            "settings": dict(self.settings),
            "lease_seconds": self.lease.total_seconds(),
            "heartbeat_seconds": self.heartbeat.total_seconds(),
            "trusted_until": self.trusted_until,
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> "Order":
        return cls(
            claim=_CLAIM.validate_python(message["claim"]),
            target=message["target"],
            settings=message["settings"],
            lease=timedelta(seconds=message["lease_seconds"]),
            heartbeat=timedelta(seconds=message["heartbeat_seconds"]),
            trusted_until=message["trusted_until"],
        )


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(line)
    return message

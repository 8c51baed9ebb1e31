"""The runs this process holds, for the event loop and the heartbeat's thread alike."""

import threading
from collections.abc import Iterable
from uuid import UUID

from wakeful.domain.runs import Claim
from wakeful.runtime.holding import Holding

__all__ = ["Holdings"]

_Key = tuple[UUID, int]


class Holdings:
    """Safe for several threads.

    It remembers what ended: a heartbeat that was on its way while a run ended reports that run as one nobody named,
    and it must not be executed a second time under the same lease.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, Holding] = {}
        self._elsewhere: set[UUID] = set()
        self._released: set[_Key] = set()
        self._released_before: set[_Key] = set()
        self._unreleased: set[_Key] = set()

    def add(self, holding: Holding) -> bool:
        """False, and nothing added, when this claim is known."""
        with self._lock:
            if self._knows(holding.claim):
                return False
            self._held[holding.lease.run.run_id] = holding
            # A suspect handed back may be claimed here again before its old execution has been removed. That one
            # was renewed elsewhere, this one is not.
            self._elsewhere.discard(holding.lease.run.run_id)
            return True

    def renewed_elsewhere(self, holding: Holding) -> None:
        """From now on another process renews this lease."""
        with self._lock:
            if self._held.get(holding.lease.run.run_id) is holding:
                self._elsewhere.add(holding.lease.run.run_id)

    def remove(self, holding: Holding, *, released: bool) -> None:
        """The run's execution is over; `released` says whether its lease was given back."""
        with self._lock:
            run_id = holding.lease.run.run_id
            if self._held.get(run_id) is holding:
                del self._held[run_id]
                self._elsewhere.discard(run_id)
            # A lease that was not given back is reported until it lapses: remembered as long as this process lives.
            (self._released if released else self._unreleased).add((run_id, holding.lease.epoch))

    def all(self) -> list[Holding]:
        with self._lock:
            return list(self._held.values())

    def to_renew(self) -> list[Holding]:
        """Those whose lease this process renews. Called once per heartbeat: what was released before the one before
        cannot be in any answer that is still to come, and is forgotten."""
        with self._lock:
            self._released_before, self._released = self._released, set()
            return [holding for run_id, holding in self._held.items() if run_id not in self._elsewhere]

    def unknown(self, claims: Iterable[Claim]) -> list[Claim]:
        with self._lock:
            return [claim for claim in claims if not self._knows(claim)]

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def _knows(self, claim: Claim) -> bool:
        key = (claim.lease.run.run_id, claim.lease.epoch)
        held = self._held.get(key[0])
        if held is not None and held.lease.epoch >= key[1]:
            return True
        return key in self._released or key in self._released_before or key in self._unreleased

"""Leases in memory, for the heartbeat's own thread."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from wakeful.domain.errors import Fenced, Unavailable
from wakeful.domain.ports.leases import Heartbeat
from wakeful.domain.runs import Claim, Lease, Run
from wakeful.domain.states import RunStatus
from wakeful.persistence.memory.holding import held
from wakeful.persistence.memory.records import Records
from wakeful.persistence.memory.run_queue import claim_of
from wakeful.persistence.readable import readable

__all__ = ["MemoryLeaseKeeper"]


class MemoryLeaseKeeper:
    """See `wakeful.domain.ports.leases`. A closed keeper raises Unavailable, as a closed connection would."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._closed = False

    def heartbeat(self, owner: UUID, leases: Sequence[Lease], *, lease: timedelta) -> Heartbeat:
        if self._closed:
            raise Unavailable("this lease keeper was closed: make a new one")
        with self._records.unit():
            renewed = [run for run in (self._renew(owner, named, lease) for named in leases) if run is not None]
            ids = frozenset(run.ref.run_id for run in renewed)
            return Heartbeat(
                renewed=ids,
                lost=frozenset(named.run.run_id for named in leases) - ids,
                adopted=self._unnamed(owner, ids),
                cancel_requested=frozenset(r.ref.run_id for r in renewed if r.cancel_requested_at is not None),
            )

    def _renew(self, owner: UUID, lease: Lease, term: timedelta) -> Run | None:
        try:
            run = held(self._records, replace(lease, owner=owner))
        except Fenced:
            return None
        run = replace(run, lease_expires_at=self._records.clock() + term)
        self._records.put_run(run)
        return run

    def _unnamed(self, owner: UUID, named: frozenset[UUID]) -> tuple[Claim, ...]:
        return tuple(
            claim_of(run, owner, waited_seconds=0.0)
            for run in self._records.current_runs()
            if run.status is RunStatus.RUNNING and run.lease_owner == owner and run.ref.run_id not in named
        )

    def wait(self, seconds: float, wake: int) -> bool:
        readable(seconds, wake)
        return False

    def close(self) -> None:
        self._closed = True

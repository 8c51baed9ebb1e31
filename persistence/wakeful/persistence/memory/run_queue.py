"""The run queue in memory: submit, claim, load."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from wakeful.domain.history import CONVERSATION_TYPES
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS, Execution
from wakeful.domain.runs import Claim, Lease, Run, Submission, Submitted
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.persistence.memory.codec import (
    copy_invocation,
    copy_run,
    copy_session,
    load_checkpoint,
    load_event,
)
from wakeful.persistence.memory.holding import held
from wakeful.persistence.memory.records import Records, run_key
from wakeful.persistence.memory.submitting import prepare, submit

__all__ = ["MemoryRunQueue", "claim_of"]


class MemoryRunQueue:
    """See `wakeful.domain.ports.run_queue` for what each method guarantees."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def submit(self, submission: Submission) -> Submitted:
        prepared = prepare(submission)
        with self._records.unit():
            return submit(self._records, prepared)

    async def claim(
        self,
        owner: UUID,
        *,
        capacity: Mapping[PriorityClass, int],
        agents: Sequence[str],
        lease: timedelta,
        suspects: int,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        now: datetime | None = None,
    ) -> list[Claim]:
        with self._records.unit():
            moment = now or self._records.clock()
            free = {priority: slots for priority, slots in capacity.items() if slots > 0}
            due = [run for run in self._queued(agents, max_attempts) if run.priority in free and _due(run) <= moment]
            due.sort(key=lambda run: (run.priority, _due(run), run.ref.run_id))
            return [self._take(run, owner, lease, moment) for run in _within(due, free, suspects)]

    def _queued(self, agents: Sequence[str], max_attempts: int) -> list[Run]:
        served = frozenset(agents)
        return [
            run
            for run in self._records.current_runs()
            if run.status is RunStatus.QUEUED and run.agent in served and run.lease_expirations < max_attempts
        ]

    def _take(self, run: Run, owner: UUID, lease: timedelta, moment: datetime) -> Claim:
        at = self._records.clock()
        taken = replace(
            run,
            status=RunStatus.RUNNING,
            lease_owner=owner,
            lease_epoch=run.lease_epoch + 1,
            lease_expires_at=at + lease,
            attempts=run.attempts + 1,
            updated_at=max(run.updated_at, at),
        )
        self._records.put_run(taken)
        return claim_of(taken, owner, waited_seconds=max(0.0, (moment - _due(run)).total_seconds()))

    async def load(self, lease: Lease) -> Execution:
        with self._records.unit():
            run = held(self._records, lease)
            ref = run.ref.session
            session = self._records.sessions.get(ref)
            checkpoints = self._records.checkpoints.get(run_key(run.ref)) or ()
            return Execution(
                run=copy_run(run),
                session_metadata=copy_session(session).metadata if session is not None else {},
                checkpoint=load_checkpoint(run.ref, checkpoints),
                invocations=[copy_invocation(call) for call in self._records.calls(run.ref)],
                history=[load_event(ref, e) for e in self._records.log(ref) if e.type in CONVERSATION_TYPES],
                last_sequence=session.last_sequence if session is not None else 0,
            )


def _due(run: Run) -> datetime:
    return run.scheduled_for or run.created_at


def _within(due: Sequence[Run], capacity: Mapping[PriorityClass, int], suspects: int) -> list[Run]:
    """The first runs of each class that its slots hold, suspects among them only while their own slots last."""
    free, chosen = dict(capacity), []
    for run in due:
        if free[run.priority] <= 0 or (run.suspect and suspects <= 0):
            continue
        free[run.priority] -= 1
        suspects -= run.suspect
        chosen.append(run)
    return chosen


def claim_of(run: Run, owner: UUID, *, waited_seconds: float) -> Claim:
    """What the worker pool is told of a run it holds."""
    return Claim(
        lease=Lease(run.ref, owner, run.lease_epoch),
        agent=run.agent,
        agent_version=run.agent_version,
        priority=run.priority,
        attempts=run.attempts,
        suspect=run.suspect,
        waited_seconds=waited_seconds,
    )

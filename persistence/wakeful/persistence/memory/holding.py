"""What a lease holder may change: guarded by owner, epoch and RUNNING, whatever else the write does."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from wakeful.domain.appends import RunChange
from wakeful.domain.checkpoints import NewCheckpoint
from wakeful.domain.errors import AlreadyAnswered, Arrived, CallMismatch, CancelAsked, Fenced, NotFound, WakefulError
from wakeful.domain.invocations import Invocation, InvocationChange, NewInvocation
from wakeful.domain.runs import Lease, Run
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import AWAITING, WAITING, InvocationStatus, RunStatus, waiting_status
from wakeful.persistence.memory.codec import save_checkpoint
from wakeful.persistence.memory.records import Records, run_key

__all__ = ["add_checkpoint", "change_calls", "change_run", "held", "open_calls", "propose"]


def held(records: Records, lease: Lease) -> Run:
    """The run, if the lease is current. Raises Fenced."""
    run = records.runs.get(run_key(lease.run))
    current = (
        run is not None
        and run.status is RunStatus.RUNNING
        and run.lease_owner == lease.owner
        and run.lease_epoch == lease.epoch
    )
    if run is None or not current:
        raise Fenced(lease.run.run_id, lease.epoch)
    return run


def open_calls(records: Records, run: RunRef) -> list[Invocation]:
    """The run's calls without a result."""
    return [call for call in records.calls(run) if not call.status.terminal]


def propose(records: Records, run: RunRef, proposals: Iterable[NewInvocation], at: datetime) -> None:
    """Write proposed calls; one that stands already must be the same call. Raises CallMismatch."""
    for new in proposals:
        known = records.invocations.get((run.tenant_id, new.id))
        if known is None:
            records.put_invocation(_invocation(run, new, at))
        elif (known.tool, known.arguments_hash) != (new.tool, new.arguments_hash):
            raise CallMismatch(f"step {new.step} position {new.position} of run {run.run_id} is another call")


def _invocation(run: RunRef, new: NewInvocation, at: datetime) -> Invocation:
    return Invocation(
        id=new.id,
        run=run,
        origin=new.origin,
        step=new.step,
        position=new.position,
        tool=new.tool,
        arguments_hash=new.arguments_hash,
        provider_call_id=new.provider_call_id,
        idempotency_class=new.idempotency_class,
        idempotency_key=new.idempotency_key,
        status=new.status,
        epoch=None,
        attempt=0,
        approved_by=None,
        child_run_id=new.child_run_id,
        child_session_id=new.child_session_id,
        context_updates=None,
        expires_at=None if new.expires_in is None else at + new.expires_in,
        created_at=at,
        started_at=None,
        finished_at=at if new.status.terminal else None,
    )


def change_calls(records: Records, run: RunRef, changes: Iterable[InvocationChange], at: datetime) -> None:
    """Raises AlreadyAnswered for a call that is in none of the expected states."""
    for change in changes:
        call = records.invocations.get((run.tenant_id, change.invocation_id))
        if call is None or call.run != run:
            raise NotFound("call", change.invocation_id)
        if call.status not in change.expected:
            raise AlreadyAnswered(change.invocation_id)
        records.put_invocation(_changed(call, change, at))


def _changed(call: Invocation, change: InvocationChange, at: datetime) -> Invocation:
    starting = change.status is InvocationStatus.RUNNING
    updates = call.context_updates if change.context_updates is None else change.context_updates
    return replace(
        call,
        status=change.status,
        epoch=call.epoch if change.epoch is None else change.epoch,
        attempt=call.attempt + 1 if starting else call.attempt,
        started_at=(call.started_at or at) if starting else call.started_at,
        finished_at=at if change.status.terminal else call.finished_at,
        context_updates=updates,
        approved_by=change.approved_by or call.approved_by,
    )


def change_run(records: Records, run: Run, change: RunChange, at: datetime) -> None:
    """Raises CancelAsked or Arrived when the run may not be released as asked."""
    if change == RunChange():
        return
    status = change.status or RunStatus.RUNNING
    _allow(records, run, status)
    run = replace(
        run,
        status=status,
        started_at=(run.started_at or at) if change.started else run.started_at,
        step=run.step if change.step is None else max(run.step, change.step),
        suspect=run.suspect and change.step is None,
        tool_call_count=max(run.tool_call_count, change.tool_call_count or 0),
        token_count=run.token_count + change.add_tokens,
        failure=run.failure if change.failure is None else change.failure.model_copy(deep=True),
        updated_at=at,
    )
    if status is not RunStatus.RUNNING:
        run = replace(run, lease_owner=None, lease_expires_at=None)
    if status is RunStatus.QUEUED and change.delay is not None:
        run = replace(run, scheduled_for=at + change.delay)
    if status.terminal:
        run = replace(run, finished_at=at)
    records.put_run(run)


def _allow(records: Records, run: Run, status: RunStatus) -> None:
    open_now = open_calls(records, run.ref)
    if status is RunStatus.QUEUED or status in WAITING:
        if run.cancel_requested_at is not None:
            raise CancelAsked(f"run {run.ref.run_id} was asked to cancel: end it")
        if status in WAITING and _called_for(open_now) is not status:
            raise Arrived(f"run {run.ref.run_id} has nothing to be {status} for any more: read the log and go on")
    if status.terminal and open_now:
        # The writer's defect: whoever ends a run has to give every call its one result first.
        raise WakefulError(f"run {run.ref.run_id} cannot be {status}: {len(open_now)} calls have no result")


def _called_for(open_now: Sequence[Invocation]) -> RunStatus | None:
    """What the open calls call for; None while one of them can be executed."""
    statuses = {call.status for call in open_now}
    return waiting_status(statuses) if statuses <= AWAITING else None


def add_checkpoint(records: Records, run: Run, new: NewCheckpoint, last_sequence: int, at: datetime) -> int:
    """Write a checkpoint: a delta only on the newest one; a full one removes all before it. Its number."""
    known = records.checkpoints.get(run_key(run.ref)) or ()
    newest = known[-1].number if known else 0
    base = new.base if new.base is not None and new.base.number == newest else None
    saved = save_checkpoint(
        new, number=newest + 1, base=base, epoch=run.lease_epoch, last_sequence=last_sequence, at=at
    )
    records.checkpoints.put(run_key(run.ref), (saved,) if base is None else (*known, saved))
    return saved.number

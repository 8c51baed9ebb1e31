"""Which edge a sweep takes, as pure decisions over what was read under the locks (see `wakeful.domain.edges`).

Every function looks again: a run that was renewed, answered or ended since it became a candidate is left alone.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from wakeful.domain.closing import closing
from wakeful.domain.content import CallResult, Failure, utc_text
from wakeful.domain.edges import Edge, Locked, settle
from wakeful.domain.events import NewEvent
from wakeful.domain.events.envelope import MAINTENANCE, Payload
from wakeful.domain.events.runs import RunCancelled, RunFailed, RunRequeued
from wakeful.domain.runs import Run
from wakeful.domain.states import WAITING, InvocationStatus, RunStatus

__all__ = ["backoff", "expire_wait", "fail_hopeless", "hopeless_code", "reclaim"]

FIRST_BACKOFF = timedelta(seconds=1)
LONGEST_BACKOFF = timedelta(minutes=1)


def backoff(lease_expirations: int) -> timedelta:
    """How long a run is left alone after its n-th expiration, from 1: one second, two, doubling up to a minute."""
    doublings = min(lease_expirations - 1, 16)
    return min(FIRST_BACKOFF * (1 << doublings), LONGEST_BACKOFF)


def reclaim(
    locked: Locked, owner: UUID, epoch: int, *, max_attempts: int, cause: str, now: datetime, at: datetime
) -> Edge:
    """Take the run from the holder whose lease has expired; unchanged when it was renewed, released or taken.

    `now` judges the expiry, `at` is recorded with the attempt.
    """
    run = locked.run
    if not _expired(run, owner, epoch, now):
        return Edge(run.status)
    crash = {"epoch": run.lease_epoch, "reason": cause, "at": utc_text(at)}
    if run.cancel_requested_at is not None:
        return _ended(locked, RunStatus.CANCELLED, RunCancelled(), "run_cancelled", crash=crash)
    crashes = run.lease_expirations + 1
    if crashes >= max_attempts:
        failure = _exhausted(run, crashes, [*run.attempt_failures, crash])
        return _ended(locked, RunStatus.FAILED, RunFailed(failure=failure), failure.code, failure, crash)
    delay = backoff(crashes)
    payload = RunRequeued(
        reason="lease_expired", epoch=epoch, lease_expirations=crashes, delay_seconds=delay.total_seconds()
    )
    return Edge(RunStatus.QUEUED, (_said(run, payload),), crash=crash, delay=delay)


def hopeless_code(run: Run, *, max_attempts: int, now: datetime) -> str | None:
    """Why a run that nobody holds can never go on; None if it can."""
    if run.status is RunStatus.QUEUED and run.lease_expirations >= max_attempts:
        return "max_attempts_exceeded"
    unheld = run.status is RunStatus.QUEUED or run.status in WAITING
    if unheld and run.deadline is not None and run.deadline <= now:
        return "deadline_exceeded"
    return None


def fail_hopeless(locked: Locked, *, max_attempts: int, now: datetime) -> Edge:
    """FAILED when the allowance is used up or the deadline has passed; otherwise unchanged."""
    run = locked.run
    code = hopeless_code(run, max_attempts=max_attempts, now=now)
    if code is None:
        return Edge(run.status)
    if code == "max_attempts_exceeded":
        failure = _exhausted(run, run.lease_expirations, list(run.attempt_failures))
    else:
        message = f"the deadline passed while the run was {run.status}"
        failure = Failure(code=code, message=message, step=run.step, attempts=list(run.attempt_failures))
    return _ended(locked, RunStatus.FAILED, RunFailed(failure=failure), code, failure)


def expire_wait(locked: Locked, call_id: UUID, *, now: datetime) -> Edge:
    """`timed_out`: FAILED for the question, DENIED for the approval; unchanged when it was answered meanwhile."""
    call = locked.call(call_id)
    if locked.run.status.terminal or call.expires_at is None or call.expires_at > now:
        return Edge(locked.run.status)
    match call.status:
        case InvocationStatus.AWAITING_INPUT:
            result = CallResult(status=InvocationStatus.FAILED, code="timed_out", message="nobody answered in time")
        case InvocationStatus.AWAITING_APPROVAL:
            result = CallResult(status=InvocationStatus.DENIED, code="timed_out", message="nobody allowed it in time")
        case _:
            return Edge(locked.run.status)
    return settle(locked, call, result, MAINTENANCE, "timeout")


def _expired(run: Run, owner: UUID, epoch: int, now: datetime) -> bool:
    mine = run.status is RunStatus.RUNNING and run.lease_owner == owner and run.lease_epoch == epoch
    return mine and run.lease_expires_at is not None and run.lease_expires_at <= now


def _exhausted(run: Run, crashes: int, attempts: list[dict[str, Any]]) -> Failure:
    message = f"{crashes} executions ended without a result"
    return Failure(code="max_attempts_exceeded", message=message, step=run.step, attempts=attempts)


def _ended(
    locked: Locked,
    status: RunStatus,
    terminal: Payload,
    code: str,
    failure: Failure | None = None,
    crash: dict[str, Any] | None = None,
) -> Edge:
    run = locked.run
    message = failure.message if failure else "the run was cancelled"
    events, changes = closing(locked.calls, MAINTENANCE, code, message, trace_id=run.trace_id)
    return Edge(status, (*events, _said(run, terminal)), changes, failure=failure, crash=crash)


def _said(run: Run, payload: Payload) -> NewEvent:
    return NewEvent(payload, MAINTENANCE, run_id=run.ref.run_id, trace_id=run.trace_id)

"""Submitting: key, session, busy check, messages and the run, all or nothing."""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from wakeful.domain.errors import IdempotencyConflict, NotFound, SessionBusy, SessionClosed
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunQueued, UserMessageReceived
from wakeful.domain.runs import Run, Submission, Submitted
from wakeful.domain.states import RunStatus
from wakeful.persistence.memory.appending import Encoded, encode, insert, now_in, session_of
from wakeful.persistence.memory.codec import plain
from wakeful.persistence.memory.records import Records, run_key
from wakeful.persistence.memory.saved import KeyRecord

__all__ = ["Prepared", "key_expired", "prepare", "submit"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission that passed the payload boundary, with its events."""

    submission: Submission
    events: tuple[Encoded, ...]


def prepare(submission: Submission) -> Prepared:
    """Raises InvalidPayload before anything is locked."""
    submission = replace(submission, metadata=plain(submission.metadata))
    return Prepared(submission, tuple(encode(_events(submission))))


def _events(submission: Submission) -> list[NewEvent]:
    actor = Actor("user", str(submission.scope.principal_id))
    payloads = [UserMessageReceived(role=message.role, content=message.content) for message in submission.messages]
    queued = RunQueued(
        agent=submission.agent,
        agent_version=submission.agent_version,
        priority=submission.priority,
        messages=len(payloads),
        parent_run_id=submission.parent.run_id if submission.parent else None,
    )
    return [
        NewEvent(payload, actor, run_id=submission.run_id, trace_id=submission.trace_id)
        for payload in (*payloads, queued)
    ]


def submit(records: Records, prepared: Prepared) -> Submitted:
    """Inside a unit of work. The key is looked up before everything that may refuse, so that submitting again
    answers the same whatever became of the session."""
    submission = prepared.submission
    session = session_of(records, submission.session)
    if session.scope != submission.scope:
        raise NotFound("session", submission.session_id)
    at = now_in(records, submission.session)
    known = _by_key(records, submission, at) or _by_run_id(records, submission)
    if known is not None:
        return known
    if session.closed:
        raise SessionClosed(submission.session_id)
    if submission.session in records.active:
        raise SessionBusy(submission.session_id)
    if submission.key is not None:
        record = KeyRecord(submission.request_hash, submission.ref, at + submission.key_kept)
        records.keys.put((*_owner(submission), submission.key), record)
    appended = insert(records, submission.session, prepared.events, at)
    records.put_run(_run(submission, appended.at))
    return Submitted(submission.ref, created=True)


def _owner(submission: Submission) -> tuple[UUID, UUID]:
    return submission.scope.tenant_id, submission.scope.principal_id


def _by_key(records: Records, submission: Submission, at: datetime) -> Submitted | None:
    record = records.keys.get((*_owner(submission), submission.key)) if submission.key is not None else None
    if record is None or key_expired(records, record, at):
        return None
    if record.request_hash != submission.request_hash:
        raise IdempotencyConflict(submission.key or "")
    return Submitted(record.run, created=False)


def key_expired(records: Records, record: KeyRecord, at: datetime) -> bool:
    """Past its time, and its run has ended: a key never lives shorter than its run."""
    run = records.runs.get(run_key(record.run))
    return record.expires_at <= at and (run is None or run.status.terminal)


def _by_run_id(records: Records, submission: Submission) -> Submitted | None:
    run = records.runs.get(run_key(submission.ref))
    if run is None:
        return None
    if run.ref != submission.ref or run.scope != submission.scope:
        raise NotFound("run", submission.run_id)
    return Submitted(run.ref, created=False)


def _run(submission: Submission, at: datetime) -> Run:
    return Run(
        ref=submission.ref,
        principal_id=submission.scope.principal_id,
        agent=submission.agent,
        agent_version=submission.agent_version,
        status=RunStatus.QUEUED,
        priority=submission.priority,
        scheduled_for=submission.scheduled_for,
        deadline=submission.deadline,
        budget=submission.budget,
        step=0,
        tool_call_count=0,
        token_count=0,
        attempts=0,
        lease_owner=None,
        lease_epoch=0,
        lease_expires_at=None,
        lease_expirations=0,
        suspect=False,
        cancel_requested_at=None,
        parent=submission.parent,
        parent_invocation_id=submission.parent_invocation_id,
        result_delivered_at=None,
        failure=None,
        attempt_failures=(),
        metadata=submission.metadata,
        trace_id=submission.trace_id,
        export_consent=False,
        created_at=at,
        started_at=None,
        finished_at=None,
        updated_at=at,
    )

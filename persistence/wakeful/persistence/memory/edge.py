"""Writing the edge that an actor without a lease takes: what `wakeful.domain.edges` decided, under the lock."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from wakeful.domain.edges import Edge, Locked
from wakeful.domain.errors import NotFound
from wakeful.domain.events import Event
from wakeful.domain.ports.run_control import Controlled
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import RunStatus
from wakeful.persistence.memory.appending import encode, insert, now_in, saved_event
from wakeful.persistence.memory.codec import load_event, plain
from wakeful.persistence.memory.holding import change_calls
from wakeful.persistence.memory.records import Records, run_key

__all__ = ["event_of", "locked", "owned", "take"]


def owned(records: Records, scope: Scope, run_id: UUID) -> Run:
    """Raises NotFound, also for another owner's."""
    run = records.runs.get((scope.tenant_id, run_id))
    if run is None or run.scope != scope:
        raise NotFound("run", run_id)
    return run


def locked(records: Records, run: RunRef) -> Locked | None:
    """The run and its calls as they are now; None when there is no such run."""
    found = records.runs.get(run_key(run))
    return None if found is None or found.ref != run else Locked(found, records.calls(run))


def event_of(records: Records, run: RunRef, event_id: UUID) -> Event | None:
    """The event with this id in the run's session."""
    saved = saved_event(records, run.session, event_id)
    return None if saved is None else load_event(run.session, saved)


def take(records: Records, seen: Locked, edge: Edge) -> Controlled:
    """Write the edge; nothing for one that does nothing."""
    run = seen.run
    if edge.applied:
        at = now_in(records, run.ref.session)
        insert(records, run.ref.session, encode(edge.events), at)
        change_calls(records, run.ref, edge.changes, at)
        if edge.resolved is not None:
            records.put_invocation(replace(seen.call(edge.resolved), resolved_at=at))
        records.put_run(_moved(run, edge, at, records.clock()))
    return Controlled(run.ref, edge.status, edge.applied)


def _moved(run: Run, edge: Edge, at: datetime, now: datetime) -> Run:
    run = replace(run, status=edge.status, updated_at=at, failure=edge.failure or run.failure)
    if edge.status is not RunStatus.RUNNING:
        run = replace(run, lease_owner=None, lease_expires_at=None)
    if edge.cancel_requested:
        run = replace(run, cancel_requested_at=run.cancel_requested_at or at)
    if edge.crash is not None:
        failures = (*run.attempt_failures, plain(edge.crash))
        run = replace(run, attempt_failures=failures, lease_expirations=run.lease_expirations + 1, suspect=True)
    if edge.delay is not None:
        run = replace(run, scheduled_for=now + edge.delay)
    return replace(run, finished_at=at) if edge.status.terminal else run

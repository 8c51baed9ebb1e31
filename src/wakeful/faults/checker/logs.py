"""Rules about a session's log as such: order, time, one end per run, and no word of a worker past its lease."""

from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID

from wakeful.faults.checker.findings import Finding
from wakeful.faults.checker.records import EventRecord, RunRecord, SessionRecord

__all__ = ["check_log", "check_run_log"]

ENDS = {"run.completed": "COMPLETED", "run.failed": "FAILED", "run.cancelled": "CANCELLED"}
_TAKEN_UP = ("run.started", "run.resumed")
_LET_GO = ("run.requeued", "run.waiting")
_AFTER_THE_END = ("run.fenced", "tool.call.resolved")
_LIFE = ("run.", "model.", "assistant.", "tool.")


def check_log(session: SessionRecord) -> Iterator[Finding]:
    """Sequences are unique, lie below the session's counter, and commit order is sequence order."""
    for one, other in pairwise(session.events):
        if one.sequence >= other.sequence:
            yield Finding("sequence unique", session.id, f"{other.sequence} after {one.sequence}")
        if one.created_at > other.created_at:
            yield Finding(
                "sequence order is commit order", session.id, f"{other.sequence} is older than the one before"
            )
    if session.events:
        last = session.events[-1]
        if last.sequence >= session.next_event_sequence:
            yield Finding("counter ahead of the log", session.id, f"{session.next_event_sequence} and {last.sequence}")
        if session.last_event_at is None or last.created_at > session.last_event_at:
            yield Finding("session knows its last event", session.id, f"sequence {last.sequence}")


def check_run_log(run: RunRecord, events: list[EventRecord]) -> Iterator[Finding]:
    yield from _one_end(run, events)
    yield from _nothing_after_the_end(run.id, events)
    yield from _only_holders_write(run.id, events)
    yield from _crashes_are_counted(run, events)


def _one_end(run: RunRecord, events: list[EventRecord]) -> Iterator[Finding]:
    ends = [ENDS[event.event_type] for event in events if event.event_type in ENDS]
    wanted = [run.status] if run.terminal else []
    if ends != wanted:
        yield Finding("one terminal event per run", run.id, f"status {run.status}, ends {ends}")
    if run.terminal != (run.finished_at is not None):
        yield Finding("an end has its time", run.id, f"status {run.status}, finished_at {run.finished_at}")
    if (run.status == "RUNNING") != (run.lease_owner is not None):
        yield Finding("only RUNNING is leased", run.id, f"status {run.status}, owner {run.lease_owner}")


def _nothing_after_the_end(run: UUID, events: list[EventRecord]) -> Iterator[Finding]:
    ended = False
    for event in events:
        if ended and event.event_type.startswith(_LIFE) and event.event_type not in _AFTER_THE_END:
            yield Finding("nothing after the end", run, f"{event.event_type} at {event.sequence}")
        ended = ended or event.event_type in ENDS


def _only_holders_write(run: UUID, events: list[EventRecord]) -> Iterator[Finding]:
    """A holder's first word names its epoch; from there on only it writes as a worker, until it lets go or a later
    epoch takes over. The one exception is the fenced worker's word that it noticed."""
    epoch, holder = 0, None
    for event in events:
        kind, said = event.event_type, event.payload.get("epoch")
        if kind in _TAKEN_UP:
            if said is None or said <= epoch:
                yield Finding("epochs grow", run, f"{kind} of epoch {said} after {epoch} at {event.sequence}")
            epoch, holder = said or 0, event.actor_id
            continue
        if kind == "run.requeued" and said is not None and said < epoch:
            yield Finding("no write of a stale epoch", run, f"{kind} of epoch {said} after {epoch} at {event.sequence}")
        if kind == "tool.call.started" and said != epoch:
            yield Finding("no write of a stale epoch", run, f"{kind} of epoch {said} in {epoch} at {event.sequence}")
        if event.actor_type == "worker" and kind not in ("run.fenced", "run.requeued") and event.actor_id != holder:
            yield Finding("no write of a stale epoch", run, f"{kind} at {event.sequence} by one who does not hold it")
        if kind in _LET_GO or kind in ENDS:
            holder = None


def _crashes_are_counted(run: RunRecord, events: list[EventRecord]) -> Iterator[Finding]:
    requeued = sum(1 for e in events if e.event_type == "run.requeued" and e.payload.get("reason") == "lease_expired")
    if run.lease_expirations not in (requeued, requeued + 1) or (run.lease_expirations > requeued and not run.terminal):
        seen = f"{run.lease_expirations} counted, {requeued} requeued"
        yield Finding("only expired leases are counted", run.id, seen)
    if run.crashes != run.lease_expirations:
        yield Finding("every crash keeps its cause", run.id, f"{run.lease_expirations} counted, {run.crashes} kept")
    fenced = [e.payload.get("epoch") for e in events if e.event_type == "run.fenced"]
    if len(fenced) != len(set(fenced)):
        yield Finding("fenced once per epoch", run.id, f"epochs {fenced}")

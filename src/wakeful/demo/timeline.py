"""The timeline of one run, as the log tells it."""

from collections.abc import Callable, Sequence
from uuid import UUID

from rich.table import Table

from wakeful.domain.events import Event
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import RunQueued, RunRequeued, RunResumed, RunStarted, RunWaiting
from wakeful.domain.events.turns import (
    AssistantMessageCreated,
    CallApproved,
    CallEnded,
    CallResolved,
    CallStarted,
)

__all__ = ["timeline"]


def timeline(title: str, events: Sequence[Event], worker: Callable[[UUID], str]) -> Table:
    """One line per event; `worker` names the process behind a lease owner."""
    table = Table(title=title, title_justify="left")
    for heading in ("at", "event", "what", "by"):
        table.add_column(heading)
    for event in events:
        seconds = (event.created_at - events[0].created_at).total_seconds()
        table.add_row(f"{seconds:.2f} s", event.type, _what(event), _by(event, worker))
    return table


def _what(event: Event) -> str:
    match event.payload:
        case RunQueued() as queued:
            return f"{queued.messages} message(s)"
        case RunStarted() as started:
            return f"lease epoch {started.epoch}"
        case RunResumed() as resumed:
            basis = "no checkpoint left" if resumed.checkpoint is None else f"checkpoint {resumed.checkpoint}"
            return f"lease epoch {resumed.epoch}, from {basis}, {resumed.adopted} adopted from the log"
        case RunRequeued() as requeued:
            crashes = f" (crash {requeued.lease_expirations})" if requeued.lease_expirations else ""
            return f"{requeued.reason}{crashes}"
        case RunWaiting() as waiting:
            return waiting.status
        case AssistantMessageCreated() as message:
            return f"step {message.step}: " + (", ".join(call.tool for call in message.calls) or str(message.content))
        case payload:
            return _what_of_a_call(payload)


def _what_of_a_call(payload: Payload) -> str:
    match payload:
        case CallStarted() as started:
            return f"{started.tool} (attempt {started.attempt})"
        case CallEnded() as ended:
            return f"{ended.tool}: {ended.result.code}"
        case CallApproved() as approved:
            return approved.tool
        case CallResolved() as resolved:
            return f"{resolved.tool}: it {'happened' if resolved.happened else 'did not happen'}"
        case _:
            return ""


def _by(event: Event, worker: Callable[[UUID], str]) -> str:
    if event.actor.type == "worker" and event.actor.id is not None:
        return worker(UUID(event.actor.id))
    return event.actor.type

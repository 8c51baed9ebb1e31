"""Rules about turns, calls and their results: pairs valid, each call answered once, each batch counted once."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from wakeful.faults.checker.findings import Finding
from wakeful.faults.checker.records import Call, EventRecord, RunRecord

__all__ = ["check_turns"]

RESULTS = {
    "tool.call.completed": "COMPLETED",
    "tool.call.failed": "FAILED",
    "tool.call.refused": "REFUSED",
    "tool.call.denied": "DENIED",
    "tool.call.cancelled": "CANCELLED",
    "tool.call.uncertain": "UNCERTAIN",
}
_NEVER_STARTED = ("REFUSED", "DENIED")


@dataclass(slots=True)
class _Turns:
    """What has been read of a run's log so far."""

    step: int = 0
    counted: int = 0
    """Tool calls of the batches before the newest turn, as fitted to the budget."""
    newest: int = 0
    """Calls of the newest turn, as fitted."""
    announced: tuple[int, int | None] | None = None
    """Step and count of a model response whose message has not come yet."""
    open: dict[tuple[int, int], None] = field(default_factory=dict)
    started: Counter[UUID] = field(default_factory=Counter)
    results: dict[UUID, str] = field(default_factory=dict)


def check_turns(run: RunRecord, events: list[EventRecord], calls: list[Call]) -> Iterator[Finding]:
    turns = _Turns()
    known = {call.id: call for call in calls}
    fits = run.budget.get("max_tool_calls")
    amended = any(event.event_type == "budget.amended" for event in events)
    for event in events:
        match event.event_type:
            case "model.response.completed":
                payload = event.payload
                turns.announced = (payload["step"], payload.get("tool_call_count_before_turn"))
            case "assistant.message.created":
                yield from _turn(run.id, turns, event, None if amended else fits, check_count=not amended)
            case "tool.call.started":
                yield from _started(run.id, turns, event, known)
            case kind if kind in RESULTS:
                yield from _result(run.id, turns, event, known)
            case _:
                pass
    yield from _at_the_end(run, turns, calls, check_count=not amended)


def _turn(run: UUID, turns: _Turns, event: EventRecord, fits: int | None, *, check_count: bool) -> Iterator[Finding]:
    step, proposed = event.payload["step"], event.payload.get("calls", [])
    if turns.open:
        yield Finding("a turn follows answered calls", run, f"step {step} with {len(turns.open)} calls open")
    if step != turns.step + 1:
        yield Finding("each step once, in order", run, f"step {step} after {turns.step}")
    turns.counted += turns.newest
    announced, turns.announced = turns.announced, None
    if announced is None or announced[0] != step:
        yield Finding("a message has its model response", run, f"step {step}")
    elif check_count and announced[1] is not None and announced[1] != turns.counted:
        yield Finding("each batch counted once", run, f"{announced[1]} counted before step {step}, not {turns.counted}")
    turns.step = step
    turns.newest = len(proposed) if fits is None else max(0, min(len(proposed), fits - turns.counted))
    turns.open.update({(step, call["position"]): None for call in proposed})


def _started(run: UUID, turns: _Turns, event: EventRecord, known: dict[UUID, Call]) -> Iterator[Finding]:
    identity = UUID(event.payload["invocation_id"])
    turns.started[identity] += 1
    call = known.get(identity)
    if call is None:
        yield Finding("a started call has its row", run, str(identity))
    elif call.idempotency_class == "non_idempotent" and turns.started[identity] > 1:
        yield Finding("no non-idempotent call starts twice", run, f"{call.tool} of step {call.step}")
    if identity in turns.results:
        yield Finding("no call starts after its result", run, f"at {event.sequence}")


def _result(run: UUID, turns: _Turns, event: EventRecord, known: dict[UUID, Call]) -> Iterator[Finding]:
    identity, status = UUID(event.payload["invocation_id"]), RESULTS[event.event_type]
    if identity in turns.results:
        yield Finding("one result per call", run, f"{event.event_type} at {event.sequence}")
    turns.results[identity] = status
    call = known.get(identity)
    if call is None:
        yield Finding("a result has its call", run, f"{event.event_type} at {event.sequence}")
        return
    if status in _NEVER_STARTED and turns.started[identity]:
        yield Finding("refused and denied calls never started", run, f"{call.tool} of step {call.step}")
    if call.origin == "model" and (call.step, call.position) not in turns.open:
        yield Finding("a result follows its turn", run, f"{call.tool} of step {call.step}, position {call.position}")
    turns.open.pop((call.step, call.position), None)


def _at_the_end(run: RunRecord, turns: _Turns, calls: list[Call], *, check_count: bool) -> Iterator[Finding]:
    if run.terminal and turns.open:
        yield Finding("an ended run has answered calls", run.id, f"open: {sorted(turns.open)}")
    for call in calls:
        logged = turns.results.get(call.id)
        if (logged or "open") != (call.status if call.status in RESULTS.values() else "open"):
            yield Finding("row and log agree", run.id, f"{call.tool} of step {call.step}: {call.status}, log {logged}")
        if call.step > turns.step:
            yield Finding("a call has its turn", run.id, f"{call.tool} of step {call.step}")
    if run.step != turns.step:
        yield Finding("row and log agree", run.id, f"step {run.step}, log {turns.step}")
    counted = turns.counted + turns.newest
    if check_count and run.status == "COMPLETED" and run.tool_call_count != counted:
        yield Finding("each batch counted once", run.id, f"{run.tool_call_count} counted, log {counted}")

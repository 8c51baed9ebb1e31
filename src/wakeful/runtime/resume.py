"""Where a run goes on: the log says, a checkpoint only shortens the reading.

`decide` is a pure function of the run, its newest checkpoint or none, the conversation in the log and the rows of the
run's calls. Its result names what was adopted, which batch goes on, at which step, what is counted, what is dropped.
"The turn" is the run's newest one; it is *adopted* when it was committed after the checkpoint, else the checkpoint's
own. Without a checkpoint everything is adopted, and no row below asks for one.

Which batch, at which step:

| the turn | goes on with |
|---|---|
| there is none | the model is asked for step 1 |
| a final reply | the run completes with it; the model is not asked |
| calls, all answered | the model is asked for the next step |
| calls, some unanswered | those calls, at the turn's own step: identity and key of a call are made of it |

How an unanswered call goes on: by its row (the table in `wakeful.runtime.calls`), which says that it was planned. In
logs whose turns and rows were not one append, a call may have no row. It is planned then:

| no row, and | budget | guards |
|---|---|---|
| the checkpoint's own batch, pending in it | fitted before: unchanged | passed before |
| the checkpoint's own batch, not pending in it | it was refused, and is again | the reason they give |
| another call of the turn has a row or a result | fitted to the count before the turn | passed before |
| nothing else of the turn | fitted to the count before the turn | passed now: reserve, repeated call |

The tool calls counted before the turn, and so once it has returned (before + fitted, set and never added):

| the turn's event | its batch | before |
|---|---|---|
| has the watermark | any | the watermark |
| has none (version 1) | the checkpoint's own, not counted in it | the checkpoint's count |
| has none (version 1) | the checkpoint's own, counted in it | nothing more is counted |
| has none (version 1) | adopted, something unanswered: a batch is counted when it has returned | the run's count |
| has none (version 1) | adopted, all answered | not known, not guessed: nothing more is counted |

What fitted is what was not refused for the budget, so a budget amended since changes nothing that was planned.

What is dropped:

| dropped | when |
|---|---|
| the checkpoint's continuation | the turn is adopted: it belongs to an older one |
| the checkpoint's pending batch | the turn is adopted: the batch had returned before it |
| open calls of older turns | always: only the newest turn's calls go on. Each gets its one result with `run.resumed`, |
| | UNCERTAIN where it may have had an effect, else CANCELLED |

Answers, approvals, results of child runs and cancels are events like all others: they are adopted like them, and an
answered call is no longer one of the unanswered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from wakeful.domain.agents import Agent
from wakeful.domain.checkpoints import Checkpoint
from wakeful.domain.events import Actor
from wakeful.domain.history import Conversation, TurnEntry
from wakeful.domain.invocations import Invocation
from wakeful.domain.ports.run_queue import Execution
from wakeful.domain.runs import Run
from wakeful.domain.states import InvocationStatus
from wakeful.runtime.course import Course
from wakeful.runtime.holding import Holding
from wakeful.runtime.journal import Journal
from wakeful.runtime.planning import Unplanned, counted_calls

__all__ = ["Adopted", "Batch", "Counted", "Decision", "Dropped", "Next", "decide", "fold", "resume"]


class Next(StrEnum):
    """What the run does first."""

    ASK = "ask"
    """The model is asked for the next step."""
    CALLS = "calls"
    """The batch goes on."""
    COMPLETE = "complete"
    """The final reply is there; only the end was lost."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What of the session history lies behind the checkpoint."""

    items: int
    turn: bool
    """Model output is among them: the newest turn is one that the checkpoint never saw."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The newest turn's unanswered calls."""

    step: int
    calls: Mapping[int, InvocationStatus | None]
    """By position, the state of the call's row; None for a call without one, which is planned."""
    unplanned: Unplanned
    """How calls without a row are planned."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Where the counters stand. `tool_calls` holds the newest batch once all of it is answered."""

    tool_calls: int
    tokens: int
    through_step: int
    """The newest step whose batch `tool_calls` holds."""
    before_turn: int | None
    """The count that the newest turn was proposed under; None where there is none, or nobody can know."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What is not taken over."""

    continuation: bool = False
    pending_step: int | None = None
    """The step of a pending batch in the checkpoint that a newer turn supersedes."""
    calls: tuple[UUID, ...] = ()
    """Open calls of older turns, in (step, position) order."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How a run is taken up."""

    checkpoint: int | None
    adopted: Adopted
    next: Next
    step: int
    """Steps committed: an asked model gives the one after it."""
    batch: Batch | None
    counted: Counted
    dropped: Dropped = field(default_factory=Dropped)


def decide(
    run: Run, checkpoint: Checkpoint | None, conversation: Conversation, invocations: Sequence[Invocation]
) -> Decision:
    """Total: every log has a decision. The same for the same arguments, in every process."""
    turn = conversation.latest_turn(run.ref.run_id)
    through = checkpoint.last_event_sequence if checkpoint else 0
    adopted = Adopted(_items_after(conversation, through), turn is not None and turn.sequence > through)
    own = None if adopted.turn else checkpoint
    before = _count_before(run, own, turn)
    rows = {row.id: row for row in invocations}
    return Decision(
        checkpoint=checkpoint.number if checkpoint else None,
        adopted=adopted,
        next=_next(turn),
        step=max(run.step, turn.step if turn else 0),
        batch=_batch(own, turn, rows) if turn is not None and turn.unanswered else None,
        counted=_counted(run, own, turn, before),
        dropped=_dropped(checkpoint, conversation, turn, invocations, superseded=adopted.turn),
    )


def _items_after(conversation: Conversation, through: int) -> int:
    items = [entry.sequence for entry in conversation.entries]
    for entry in conversation.entries:
        if isinstance(entry, TurnEntry):
            items += [record.result_sequence or 0 for record in entry.calls]
    return sum(1 for sequence in items if sequence > through)


def _next(turn: TurnEntry | None) -> Next:
    if turn is None:
        return Next.ASK
    if turn.final:
        return Next.COMPLETE
    return Next.CALLS if turn.unanswered else Next.ASK


def _batch(own: Checkpoint | None, turn: TurnEntry, rows: Mapping[UUID, Invocation]) -> Batch:
    pending = own.state.pending if own else None
    known = [r for r in turn.calls if r.result is not None or r.invocation_id in rows]
    unplanned = Unplanned(
        pending=frozenset(pending.positions) if pending is not None and pending.step == turn.step else None,
        guarded=not known,
    )
    calls = {
        record.call.position: rows[record.invocation_id].status if record.invocation_id in rows else None
        for record in turn.unanswered
    }
    return Batch(turn.step, calls, unplanned)


def _count_before(run: Run, own: Checkpoint | None, turn: TurnEntry | None) -> int | None:
    if turn is None or turn.count_before is not None:
        return turn.count_before if turn else None
    if own is not None:
        budget = own.state.budget
        return None if budget.counted_through_step >= turn.step else budget.tool_call_count
    return run.tool_call_count if turn.unanswered else None


def _counted(run: Run, own: Checkpoint | None, turn: TurnEntry | None, before: int | None) -> Counted:
    if turn is None:
        return Counted(run.tool_call_count, run.token_count, 0, None)
    if turn.unanswered:
        return Counted(run.tool_call_count, run.token_count, turn.step - 1, before)
    after = run.tool_call_count if before is None else max(run.tool_call_count, before + counted_calls(turn))
    return Counted(after, run.token_count, turn.step, before)


def _dropped(
    checkpoint: Checkpoint | None,
    conversation: Conversation,
    turn: TurnEntry | None,
    invocations: Sequence[Invocation],
    *,
    superseded: bool,
) -> Dropped:
    older = [
        row
        for row in invocations
        if turn is not None
        and row.origin == "model"
        and row.step < turn.step
        and not row.status.terminal
        and not conversation.has_result(row.id)
    ]
    calls = tuple(row.id for row in sorted(older, key=lambda row: (row.step, row.position)))
    if checkpoint is None or not superseded:
        return Dropped(calls=calls)
    pending = checkpoint.state.pending
    return Dropped(checkpoint.state.continuation is not None, pending.step if pending else None, calls)


def resume(
    execution: Execution, agent: Agent, holding: Holding, journal: Journal, actor: Actor
) -> tuple[Course, Decision]:
    """The course of a run as of everything committed, and how that was decided."""
    run, checkpoint = execution.run, execution.checkpoint
    decision = decide(run, checkpoint, journal.conversation, execution.invocations)
    course = Course(run, agent, holding, journal, actor)
    for invocation in execution.invocations:
        course.know(invocation)
    _believe_results(course)
    course.step = decision.step
    course.token_count = decision.counted.tokens
    course.tool_call_count = decision.counted.tool_calls
    course.counted_through_step = decision.counted.through_step
    if decision.batch is not None:
        course.unplanned = decision.batch.unplanned
        course.assume_before(decision.batch.step, decision.counted.before_turn)
    if checkpoint is not None:
        course.summary, course.summary_through = checkpoint.state.summary, checkpoint.state.summary_through
        course.continuation = None if decision.adopted.turn else checkpoint.state.continuation
    return course, decision


def _believe_results(course: Course) -> None:
    """Calls were read before the history, so a result may be in the log that the row did not show yet."""
    turn = course.latest_turn()
    for record in turn.calls if turn else ():
        if record.result is not None:
            course.journal.calls[record.invocation_id] = record.result.status


def fold(execution: Execution) -> Conversation:
    """The conversation that the loaded history makes."""
    return Conversation.of(list(execution.history))

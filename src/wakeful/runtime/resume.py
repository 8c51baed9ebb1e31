"""Where a run goes on: the log says, a checkpoint only shortens the reading.

The decisions of ADR-0166, each with what makes it so here:

* No model output: the checkpoint's batch goes on at the step it was proposed in. The turn's event carries its step,
  and the step is part of every call's identity, so answered calls are not run again and unanswered ones are decided
  by their row.
* A newer turn: it supersedes the checkpoint's batch and the continuation is dropped. Only the newest turn of a run
  is ever dispatched.
* A newer turn, all answered, not counted: its batch is counted once, `tool_call_count_before_turn` plus its fitted
  size, set and never added.
* A final reply with nothing unanswered: the run completes with it, and the model is not asked again.
* Calls without a row and without a result, from older logs: fitted and guarded again against the count before the
  turn; planning is a pure function of the log.
* Answers, approvals, child results and cancels: events like all others, adopted like them.
* No checkpoint at all: the same, since nothing above asks for one.
"""

from dataclasses import dataclass

from wakeful.domain.agents import Agent
from wakeful.domain.events import Actor
from wakeful.domain.history import Conversation
from wakeful.domain.ports.run_queue import Execution
from wakeful.runtime.course import Course
from wakeful.runtime.holding import Holding
from wakeful.runtime.journal import Journal

__all__ = ["Resumption", "fold", "resume"]


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a run was taken up: the checkpoint it came from and how much of the log lay behind it."""

    checkpoint: int | None
    adopted: int
    superseded: bool
    """A turn the checkpoint never saw stands in the log."""


def resume(
    execution: Execution, agent: Agent, holding: Holding, journal: Journal, actor: Actor
) -> tuple[Course, Resumption]:
    """The course of a run as of everything committed, and how it was found."""
    run, checkpoint = execution.run, execution.checkpoint
    course = Course(run, agent, holding, journal, actor)
    for invocation in execution.invocations:
        course.know(invocation)
    _believe_results(course)
    turn = course.latest_turn()
    course.step = max(run.step, turn.step if turn else 0)
    course.token_count = run.token_count
    course.tool_call_count = run.tool_call_count
    if turn is not None and not turn.unanswered:
        course.tool_call_count = course.count_after(turn)
    through = checkpoint.last_event_sequence if checkpoint else 0
    superseded = turn is not None and turn.sequence > through
    if checkpoint is not None:
        course.summary, course.summary_through = checkpoint.state.summary, checkpoint.state.summary_through
    adopted = sum(1 for event in execution.history if event.sequence > through)
    return course, Resumption(checkpoint.number if checkpoint else None, adopted, superseded)


def _believe_results(course: Course) -> None:
    """Calls were read before the history, so a result may be in the log that the row did not show yet."""
    turn = course.latest_turn()
    for record in turn.calls if turn else ():
        if record.result is not None:
            course.journal.calls[record.invocation_id] = record.result.status


def fold(execution: Execution) -> Conversation:
    """The conversation that the loaded history makes."""
    return Conversation.of(list(execution.history))

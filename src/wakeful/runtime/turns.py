"""Taking a step: asking the driver, and committing its turn as one append."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from wakeful.domain.appends import RunChange
from wakeful.domain.checkpoints import PendingBatch
from wakeful.domain.closing import result_event
from wakeful.domain.content import ArtifactRef, Content, ProposedCall
from wakeful.domain.drivers import Compacting, Turn, View
from wakeful.domain.errors import BudgetExceeded, PermanentModelError, RunFailure, TransientModelError
from wakeful.domain.events import NewEvent
from wakeful.domain.events.runs import RunChildStarted, RunCompleted
from wakeful.domain.events.turns import (
    ApprovalRequested,
    AssistantMessageCreated,
    ModelCallFailed,
    ModelResponseCompleted,
)
from wakeful.domain.ids import derived_id
from wakeful.domain.payloads import repair, repair_text
from wakeful.domain.ports.artifacts import Artifacts
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.runtime.compacting import commit_summary
from wakeful.runtime.course import Course
from wakeful.runtime.inlining import Inliner
from wakeful.runtime.interrupts import check, outside
from wakeful.runtime.journal import Entry
from wakeful.runtime.planning import Planned
from wakeful.runtime.retries import delay
from wakeful.runtime.safe import describe
from wakeful.runtime.settings import ExecutionSettings

__all__ = ["Stepper", "tools_allowed"]

T = TypeVar("T")


class Stepper:
    """Takes a run's steps. Holds no state of its own between them."""

    def __init__(self, settings: ExecutionSettings, artifacts: Artifacts | None) -> None:
        self._settings, self._artifacts = settings, artifacts

    async def take(self, course: Course) -> bool:
        """Ask for the next turn and commit it; True when it ended the run.

        Raises BudgetExceeded or another RunFailure when the step may not be taken or the model cannot answer,
        Interrupted when the run has to stop, and what Journal.append raises.
        """
        step = course.step + 1
        _within_budget(course, step)
        driver = course.agent.driver
        if isinstance(driver, Compacting):
            summary = await self._ask(course, step, driver.compact)
            if summary is not None:
                await commit_summary(course, summary)
                check(course.holding)
        turn = await self._ask(course, step, driver.next_turn)
        if not isinstance(turn, Turn):
            raise PermanentModelError(f"the driver returned a {type(turn).__name__}, not a Turn")
        return await self._commit(course, step, turn)

    async def _ask(self, course: Course, step: int, question: Callable[[View], Awaitable[T]]) -> T:
        policy, attempt = self._settings.model_retry, 0
        while True:
            attempt += 1
            try:
                return await self._answer(course, step, question)
            except TransientModelError as error:
                pause = delay(policy, attempt, at_least_seconds=error.retry_after_seconds)
                left = course.time_left()
                final = attempt >= policy.attempts or (left is not None and left <= pause)
                await course.journal.append(
                    Entry((_failed_call(course, step, attempt, error, None if final else pause),))
                )
                if final:
                    raise
                await outside(course.holding, asyncio.sleep(pause.total_seconds()))
            except RunFailure as error:
                await course.journal.append(Entry((_failed_call(course, step, attempt, error, None),)))
                raise

    async def _answer(self, course: Course, step: int, question: Callable[[View], Awaitable[T]]) -> T:
        view = View(
            run=course.run,
            conversation=course.conversation,
            step=step,
            tools_allowed=tools_allowed(course, step),
            continuation=course.continuation,
            summary=course.summary,
            summary_through=course.summary_through,
            context_updates=course.context_updates(),
            fetch=self._fetcher(course),
        )
        left = course.time_left()
        try:
            return await outside(course.holding, _within(left, _as_failure(question(view))))
        except TimeoutError:
            raise RunFailure("the deadline passed during a model call", code="deadline_exceeded") from None

    def _fetcher(self, course: Course) -> Callable[[ArtifactRef], Awaitable[bytes]] | None:
        return None if self._artifacts is None else partial(self._artifacts.fetch, course.run.ref.session)

    async def _commit(self, course: Course, step: int, turn: Turn) -> bool:
        calls, content, repaired = await self._storable(course, turn)
        if turn.silent and not calls:
            await course.journal.append(self._ended(course, step, turn, ()))
            return True
        response = ModelResponseCompleted(
            step=step,
            provider=turn.provider,
            model=turn.model,
            finish_reason=repair_text(turn.finish_reason),
            usage=turn.usage,
            tool_call_count_before_turn=course.tool_call_count,
            repaired=repaired,
        )
        message = AssistantMessageCreated(step=step, content=content, calls=calls)
        events = (course.event(response), course.event(message))
        course.token_count += turn.usage.total
        course.continuation = turn.continuation
        if turn.final:
            course.step = step
            await course.journal.append(self._ended(course, step, turn, events))
            return True
        planned = course.planner.plan(
            step,
            calls,
            course.conversation,
            count_before=course.tool_call_count,
            tools_allowed=tools_allowed(course, step),
        )
        await course.journal.append(self._opened(course, step, turn, events, planned))
        if course.holding.claim.suspect:
            # It has shown that it can take a step: back to the ordinary pool, out of its process of its own.
            course.holding.draining = True
        return False

    async def _storable(self, course: Course, turn: Turn) -> tuple[list[ProposedCall], Content, int]:
        inliner = Inliner(
            self._artifacts, course.run.ref.session, course.run.ref.run_id, self._settings.inline_payload_bytes
        )
        content = repair(turn.content) if isinstance(turn.content, str | list) else None
        repaired = content.replaced if content else 0
        calls = []
        for position, call in enumerate(turn.calls):
            arguments = call.arguments
            if isinstance(arguments, str):
                clean = repair(arguments)
                repaired += clean.replaced
                arguments = await inliner.text(clean.value)
            calls.append(
                ProposedCall(
                    position=position,
                    tool=repair_text(call.tool),
                    arguments=arguments,
                    provider_call_id=repair_text(call.provider_call_id),
                )
            )
        return calls, await inliner.content(content.value if content else turn.content), repaired

    def opening(self, course: Course, step: int, planned: list[Planned]) -> Entry:
        """The append that writes the rows of planned calls, with the refusals and approval requests among them."""
        for item in planned:
            course.propose(item.invocation)
        return Entry(
            events=tuple(event for item in planned if (event := _first_event(course, item)) is not None),
            run=RunChange(step=step, tool_call_count=course.tool_call_count),
            proposals=tuple(item.invocation for item in planned),
            checkpoint=course.checkpoint("tool_pending", pending=_pending(step, planned)),
        )

    def _opened(
        self, course: Course, step: int, turn: Turn, events: tuple[NewEvent, ...], planned: list[Planned]
    ) -> Entry:
        course.step = step
        entry = self.opening(course, step, planned)
        run = RunChange(step=step, add_tokens=turn.usage.total, tool_call_count=course.tool_call_count)
        return replace(entry, events=(*events, *entry.events), run=run)

    def _ended(self, course: Course, step: int, turn: Turn, events: tuple[NewEvent, ...]) -> Entry:
        completed = RunCompleted(steps=course.step, tool_calls=course.tool_call_count)
        return Entry(
            events=(*events, course.event(completed)),
            run=RunChange(
                status=RunStatus.COMPLETED,
                step=step if events else None,
                add_tokens=turn.usage.total,
                tool_call_count=course.tool_call_count,
            ),
            checkpoint=course.checkpoint("terminal"),
        )


def _within_budget(course: Course, step: int) -> None:
    budget = course.run.budget
    if budget.max_steps is not None and step > budget.max_steps:
        raise BudgetExceeded(f"the run's budget of {budget.max_steps} steps is used up")
    if budget.max_tokens is not None and course.token_count >= budget.max_tokens:
        raise BudgetExceeded(f"the run's budget of {budget.max_tokens} tokens is used up")
    left = course.time_left()
    if left is not None and left <= timedelta():
        raise RunFailure("the run's deadline has passed", code="deadline_exceeded")


def tools_allowed(course: Course, step: int) -> bool:
    """The last allowed step is kept for an answer."""
    limit = course.run.budget.max_steps
    return limit is None or step < limit or limit == 1


async def _within(left: timedelta | None, awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, None if left is None else max(left.total_seconds(), 0.0))


async def _as_failure(awaitable: Awaitable[T]) -> T:
    try:
        return await awaitable
    except (asyncio.CancelledError, RunFailure):
        raise
    except BaseException as error:
        raise PermanentModelError(describe(error)) from error


def _failed_call(course: Course, step: int, attempt: int, error: RunFailure, pause: timedelta | None) -> NewEvent:
    seconds = None if pause is None else pause.total_seconds()
    return course.event(
        ModelCallFailed(step=step, attempt=attempt, code=error.code, message=describe(error), delay_seconds=seconds)
    )


def _pending(step: int, planned: list[Planned]) -> PendingBatch:
    return PendingBatch(step=step, positions=[item.call.position for item in planned if item.refusal is None])


def _first_event(course: Course, item: Planned) -> NewEvent | None:
    """What is said of a call with its turn: that it is refused, that a person is asked, that a child is meant."""
    new = item.invocation
    if item.refusal is not None:
        return result_event(course.row(new.id), item.refusal, course.actor, trace_id=course.run.trace_id)
    if new.child_run_id is not None and new.child_session_id is not None:
        return course.event(
            RunChildStarted(invocation_id=new.id, child_run_id=new.child_run_id, child_session_id=new.child_session_id),
            event_id=derived_id("child-started", new.id),
        )
    if new.status is not InvocationStatus.AWAITING_APPROVAL:
        return None
    return course.event(
        ApprovalRequested(invocation_id=new.id, step=new.step, position=new.position, tool=new.tool),
        event_id=derived_id("approval-requested", new.id),
    )

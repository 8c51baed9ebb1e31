"""Executing a claimed run: take it up from the log, loop, let go of it in one guarded append."""

from collections.abc import Callable
from functools import partial

import structlog

from wakeful.domain.agents import Catalogue
from wakeful.domain.appends import Append, RunChange
from wakeful.domain.closing import closing
from wakeful.domain.content import Failure
from wakeful.domain.errors import (
    AlreadyAnswered,
    Arrived,
    CancelAsked,
    Fenced,
    NotFound,
    RunFailure,
    Unavailable,
    UnknownEventVersion,
    WakefulError,
)
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunFenced,
    RunRequeued,
    RunResumed,
    RunStarted,
    RunWaiting,
)
from wakeful.domain.history import TurnEntry
from wakeful.domain.ids import derived_id
from wakeful.domain.ports.artifacts import Artifacts
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.ports.run_queue import RunQueue
from wakeful.domain.ports.sessions import Sessions
from wakeful.domain.ports.wakeups import NoWakeups, Wakeups
from wakeful.domain.states import AWAITING, RunStatus, waiting_status
from wakeful.runtime.calls import Caller
from wakeful.runtime.chain import Chain
from wakeful.runtime.children import Children
from wakeful.runtime.course import Course
from wakeful.runtime.holding import Holding
from wakeful.runtime.interrupts import Cancelled, Draining, check
from wakeful.runtime.journal import Entry, Journal
from wakeful.runtime.outcomes import Ending
from wakeful.runtime.patience import until_answered
from wakeful.runtime.resume import Decision, fold, resume
from wakeful.runtime.safe import describe
from wakeful.runtime.settings import ExecutionSettings
from wakeful.runtime.turns import Stepper, tools_allowed

__all__ = ["Executor"]

_log = structlog.get_logger(__name__)


class Executor:
    """Executes runs of the catalogue's agents; one instance serves every run of a process at once."""

    def __init__(
        self,
        *,
        log: EventLog,
        queue: RunQueue,
        sessions: Sessions,
        catalogue: Catalogue,
        artifacts: Artifacts | None = None,
        wakeups: Wakeups | None = None,
        settings: ExecutionSettings | None = None,
    ) -> None:
        self._log, self._queue, self._catalogue = log, queue, catalogue
        self._settings = settings or ExecutionSettings()
        versions = {agent.name: agent.version for agent in catalogue.agents.values()}
        children = Children(queue, sessions, wakeups or NoWakeups(), versions, self._settings.database_retry_max)
        self._stepper = Stepper(self._settings, artifacts)
        self._caller = Caller(self._settings, artifacts, children)

    async def execute(self, holding: Holding) -> Ending:
        """Execute the run until this worker lets go of it.

        Never raises for anything a run does. Everything it wrote was guarded by the lease; after FENCED it wrote at
        most `run.fenced`. Raises CancelledError only when its own task is cancelled, and what makes it impossible to go
        on in this process (MemoryError, stored rows that cannot be read): a crash.
        """
        ref = holding.lease.run
        with structlog.contextvars.bound_contextvars(
            run_id=str(ref.run_id), session_id=str(ref.session_id), lease_epoch=holding.lease.epoch
        ):
            try:
                return await self._execute(holding)
            except Fenced:
                return await self._fenced(holding)
            except Unavailable as error:
                _log.warning("run.abandoned", error=error.code)
                return Ending.ABANDONED

    async def _execute(self, holding: Holding) -> Ending:
        try:
            course, decision = await self._take_up(holding)
        except UnknownEventVersion as error:
            # Written by newer code: a worker that knows it can go on, so the run is neither failed nor touched.
            _log.error("run.unreadable", error=describe(error))
            return Ending.ABANDONED
        try:
            await self._announce(course, decision)
            return await self._loop(course)
        except Cancelled:
            return await self._cancel(course)
        except Draining:
            return await self._hand_back(course)
        except RunFailure as failure:
            return await self._fail(course, failure.code, describe(failure).partition(": ")[2] or failure.code)
        except (Fenced, Unavailable, MemoryError):
            # Memory is the process's: whoever used it up, this run is not to fail for it.
            raise
        except Exception as error:
            _log.exception("run.internal_error")
            code = error.code if isinstance(error, WakefulError) else "internal_error"
            return await self._fail(course, code, describe(error))

    async def _take_up(self, holding: Holding) -> tuple[Course, Decision]:
        execution = await until_answered(
            holding, self._settings.database_retry_max, partial(self._queue.load, holding.lease)
        )
        journal = Journal(
            self._log,
            holding,
            fold(execution),
            last_sequence=execution.last_sequence,
            longest_pause=self._settings.database_retry_max,
            chain=Chain.of(execution.checkpoint),
        )
        agent = self._catalogue.agent(execution.run.agent)
        if execution.run.cancel_requested_at is not None:
            holding.cancel_requested = True
        return resume(execution, agent, holding, journal, Actor("worker", str(holding.lease.owner)))

    async def _announce(self, course: Course, decision: Decision) -> None:
        epoch = course.holding.lease.epoch
        if course.run.started_at is None:
            started = course.event(RunStarted(epoch=epoch), event_id=derived_id("started", course.run.ref.run_id))
            await course.journal.append(
                Entry((started,), run=RunChange(started=True), checkpoint=course.checkpoint("run_start"))
            )
            return
        resumed = RunResumed(epoch=epoch, checkpoint=decision.checkpoint, adopted=decision.adopted.items)
        event = course.event(resumed, event_id=derived_id("resumed", course.run.ref.run_id, epoch))

        def build() -> Entry:
            dropped = [call for call in course.open_calls() if call.id in decision.dropped.calls]
            results, changes = closing(
                dropped, course.actor, "superseded", "a newer turn came before the call", trace_id=course.run.trace_id
            )
            rows = self._missing_rows(course)
            return Entry(
                (event, *results, *rows.events),
                run=RunChange(tool_call_count=course.tool_call_count),
                proposals=rows.proposals,
                changes=changes,
            )

        await self._insist(course, build)

    def _missing_rows(self, course: Course) -> Entry:
        """Logs of before the turn and its rows were one append may hold calls without a row: they are planned."""
        turn = course.latest_turn()
        missing = [r.invocation_id for r in turn.unanswered if course.call(r.invocation_id) is None] if turn else []
        if turn is None or not missing:
            return Entry(())
        planned = course.planner.plan(
            turn.step,
            [record.call for record in turn.calls],
            course.conversation,
            count_before=course.count_before(turn),
            tools_allowed=tools_allowed(course, turn.step),
            known=course.unplanned,
        )
        return self._stepper.opening(course, turn.step, [p for p in planned if p.invocation.id in missing])

    async def _loop(self, course: Course) -> Ending:
        while True:
            check(course.holding)
            turn = course.latest_turn()
            if turn is None or (turn.calls and not turn.unanswered):
                if turn is not None:
                    course.count(turn)
                if await self._stepper.take(course):
                    return Ending.COMPLETED
            elif turn.final:
                return await self._complete(course)
            elif (ending := await self._batch(course, turn)) is not None:
                return ending

    async def _batch(self, course: Course, turn: TurnEntry) -> Ending | None:
        await self._caller.run_batch(course, turn)
        check(course.holding)
        statuses = {call.status for call in course.open_calls()}
        waiting = waiting_status(statuses & AWAITING)
        if waiting is None or statuses - AWAITING:
            return None
        return await self._wait(course, waiting)

    async def _wait(self, course: Course, status: RunStatus) -> Ending | None:
        calls = [call.id for call in course.open_calls()]
        waiting = course.event(RunWaiting(status=status, calls=calls))
        try:
            await course.journal.append(
                Entry((waiting,), run=RunChange(status=status), checkpoint=course.checkpoint("waiting"))
            )
        except (Arrived, AlreadyAnswered):
            await course.journal.catch_up()
            return None
        except CancelAsked:
            course.holding.cancel_requested = True
            return None
        return Ending.WAITING

    async def _complete(self, course: Course) -> Ending:
        """Only the end was lost: the reply stands in the log, and the model is not asked again."""
        completed = RunCompleted(steps=course.step, tool_calls=course.tool_call_count)
        await self._end(course, RunStatus.COMPLETED, completed)
        return Ending.COMPLETED

    async def _cancel(self, course: Course) -> Ending:
        await self._end(course, RunStatus.CANCELLED, RunCancelled(), code="cancelled", message="the run was cancelled")
        return Ending.CANCELLED

    async def _fail(self, course: Course, code: str, message: str) -> Ending:
        failure = Failure(code=code, message=message, step=course.step + 1)
        await self._end(
            course, RunStatus.FAILED, RunFailed(failure=failure), code=code, message=message, failure=failure
        )
        return Ending.FAILED

    async def _end(
        self,
        course: Course,
        status: RunStatus,
        payload: Payload,
        *,
        code: str = "ended",
        message: str = "the run ended",
        failure: Failure | None = None,
    ) -> None:
        """The terminal append: every unanswered call gets its one result with it."""
        ended = course.event(payload, event_id=derived_id("ended", course.run.ref.run_id))

        def build() -> Entry:
            events, changes = closing(course.open_calls(), course.actor, code, message, trace_id=course.run.trace_id)
            return Entry(
                (*events, ended),
                run=RunChange(status=status, failure=failure, tool_call_count=course.tool_call_count),
                changes=changes,
                checkpoint=course.checkpoint("terminal"),
            )

        await self._insist(course, build)

    @staticmethod
    async def _insist(course: Course, build: Callable[[], Entry]) -> None:
        """Append what `build` says; somebody who answers one of its calls first is adopted, and it is asked again."""
        while True:
            try:
                await course.journal.append(build)
                return
            except AlreadyAnswered:
                await course.journal.catch_up()

    async def _hand_back(self, course: Course) -> Ending:
        requeued = course.event(RunRequeued(reason="drain", epoch=course.holding.lease.epoch))
        try:
            await course.journal.append(
                Entry((requeued,), run=RunChange(status=RunStatus.QUEUED), checkpoint=course.checkpoint("drain"))
            )
        except CancelAsked:
            return await self._cancel(course)
        return Ending.HANDED_BACK

    async def _fenced(self, holding: Holding) -> Ending:
        """Leave one word in the log, once per run and epoch, and write nothing more."""
        holding.lost = True
        lease = holding.lease
        event = NewEvent(
            RunFenced(epoch=lease.epoch),
            Actor("worker", str(lease.owner)),
            run_id=lease.run.run_id,
            event_id=derived_id("fenced", lease.run.run_id, lease.epoch),
        )
        try:
            await self._log.append(Append(lease.run.session, (event,)))
        except (NotFound, Unavailable) as error:
            _log.warning("run.fenced_unrecorded", error=error.code)
        return Ending.FENCED

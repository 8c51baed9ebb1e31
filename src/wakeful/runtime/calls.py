"""The tool pipeline: every call of a batch with units of work of its own — intent, commit, effect, result, commit.

| the call's row says | what is done |
|---|---|
| REQUESTED | intent, effect, result |
| RUNNING under an older epoch, read_only, idempotent or conditionally_idempotent | the same again, with the same key |
| RUNNING under an older epoch, non_idempotent | UNCERTAIN, unless its service knows; nothing is repeated |
| AWAITING_CHILD | the child run is submitted again under its derived id, which finds it |
| AWAITING_APPROVAL, AWAITING_INPUT | nothing: somebody else answers |
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from wakeful.domain.appends import RunChange
from wakeful.domain.closing import OPEN_CALLS, result_event
from wakeful.domain.content import ArtifactRef, CallResult, ProposedCall
from wakeful.domain.errors import AlreadyAnswered, InvalidPayload, NotFound
from wakeful.domain.events.turns import CallStarted
from wakeful.domain.history import CallRecord, TurnEntry
from wakeful.domain.ids import derived_id
from wakeful.domain.invocations import Invocation, InvocationChange
from wakeful.domain.ports.artifacts import Artifacts
from wakeful.domain.states import InvocationStatus
from wakeful.domain.tools import ToolCall
from wakeful.runtime.children import Children
from wakeful.runtime.course import Course
from wakeful.runtime.effects import Effect, run_tool
from wakeful.runtime.holding import Holding
from wakeful.runtime.inlining import Inliner
from wakeful.runtime.interrupts import check, interrupted
from wakeful.runtime.journal import Entry
from wakeful.runtime.planning import parse_arguments
from wakeful.runtime.reconciling import reconciled
from wakeful.runtime.safe import describe
from wakeful.runtime.settings import ExecutionSettings

__all__ = ["Caller"]

_log = structlog.get_logger(__name__)
_TRUST_POLL_SECONDS = 0.1


class Caller:
    """Executes the open calls of a turn. Holds no state of its own between batches."""

    def __init__(self, settings: ExecutionSettings, artifacts: Artifacts | None, children: Children) -> None:
        self._settings, self._artifacts, self._children = settings, artifacts, children

    async def run_batch(self, course: Course, turn: TurnEntry) -> None:
        """Bring every call that can be brought on to its result, all at once.

        On return, calls without a result wait for somebody else. Raises Interrupted when the run was called away
        (calls in flight are cancelled; one that cannot be repeated is waited for while the process drains), Fenced,
        and the first unexpected error of a call once the others have ended.
        """
        tasks = [asyncio.ensure_future(self._bring_on(course, record)) for record in turn.unanswered]
        try:
            await self._all_or_interrupted(course, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await course.journal.settle()
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        check_finished(course, tasks)

    async def _all_or_interrupted(self, course: Course, tasks: "list[asyncio.Task[None]]") -> None:
        holding = course.holding
        for task in tasks:
            task.add_done_callback(lambda _: holding.changed.set())
        while any(not task.done() for task in tasks):
            holding.changed.clear()
            if interrupted(holding) and not self._must_stay(course):
                return
            if any(task.done() and not task.cancelled() and task.exception() is not None for task in tasks):
                return
            await holding.changed.wait()

    @staticmethod
    def _must_stay(course: Course) -> bool:
        """While draining, a call that nobody may repeat keeps its lease until it ends."""
        holding = course.holding
        return holding.draining and not holding.lost and not holding.cancel_requested and holding.unrepeatable > 0

    async def _bring_on(self, course: Course, record: CallRecord) -> None:
        call = course.call(record.invocation_id)
        if call is None:
            raise NotFound("tool invocation", record.invocation_id)
        match call.status:
            case InvocationStatus.REQUESTED:
                await self._execute(course, call, record.call)
            case InvocationStatus.RUNNING if call.idempotency_class.repeatable:
                await self._execute(course, call, record.call)
            case InvocationStatus.RUNNING:
                unknown = Effect(_unknown_outcome())
                await self._answer(course, call, await self._reconciled(course, call, unknown))
            case InvocationStatus.AWAITING_CHILD:
                await self._children.start(course, call, record.call)
            case _:
                return

    async def _execute(self, course: Course, call: Invocation, proposed: ProposedCall) -> None:
        tool = course.agent.tools.get(call.tool)
        if tool is None:
            await self._answer(course, call, Effect(_gone(call.tool)))
            return
        try:
            arguments = tool.validate(parse_arguments(await self._argument_text(course, proposed)))
        except (ValueError, InvalidPayload) as error:
            await self._answer(course, call, Effect(_invalid(error)))
            return
        await self._until_trusted(course)
        if interrupted(course.holding):
            return
        # From before the intent until the result is written: a drain in between would leave a call that nobody may
        # repeat with an intent and no word of what became of it.
        with _staying(course.holding, call):
            if not await self._intend(course, call):
                return
            effect = await self._effect(course, call, arguments)
            if effect.result.status is not InvocationStatus.UNCERTAIN:
                await self._answer(course, call, effect)
                return
        await self._answer(course, call, await self._reconciled(course, call, effect))

    async def _effect(self, course: Course, call: Invocation, arguments: dict[str, object]) -> Effect:
        with course.holding.waiting_outside():
            return await run_tool(
                course.agent.tools[call.tool],
                _context(course, call),
                arguments,
                time_left=course.time_left,
                may_start=course.holding.may_start,
                cancel_grace=self._settings.cancel_grace,
            )

    async def _reconciled(self, course: Course, call: Invocation, unknown: Effect) -> Effect:
        """Nothing is in flight any more: a drain does not wait for this, the next worker asks again."""
        tool = course.agent.tools.get(call.tool)
        if tool is None:
            return unknown
        with course.holding.waiting_outside():
            return await reconciled(
                tool,
                _context(course, call),
                unknown,
                time_left=course.time_left,
                cancel_grace=self._settings.cancel_grace,
            )

    async def _until_trusted(self, course: Course) -> None:
        """No effect starts past the time the lease can be trusted; the next heartbeat extends it or tells it lost."""
        while not course.holding.may_start() and not interrupted(course.holding):  # noqa: ASYNC110 - trust ends by the clock
            await asyncio.sleep(_TRUST_POLL_SECONDS)

    async def _intend(self, course: Course, call: Invocation) -> bool:
        """Commit the intent; False when somebody answered the call meanwhile."""
        epoch = course.holding.lease.epoch
        started = CallStarted(
            invocation_id=call.id,
            step=call.step,
            position=call.position,
            tool=call.tool,
            epoch=epoch,
            attempt=call.attempt + 1,
        )
        change = InvocationChange(
            call.id,
            InvocationStatus.RUNNING,
            frozenset({InvocationStatus.REQUESTED, InvocationStatus.RUNNING}),
            epoch=epoch,
        )
        event = course.event(started, event_id=derived_id("intent", call.id, epoch))
        try:
            await course.journal.append(Entry((event,), changes=(change,)))
        except AlreadyAnswered:
            await course.journal.catch_up()
            return False
        return True

    async def _answer(self, course: Course, call: Invocation, effect: Effect) -> None:
        """Commit the result. The batch's last one also counts the batch and writes the checkpoint."""
        effect = await self._inlined(course, effect)
        event = result_event(call, effect.result, course.actor, repaired=effect.repaired, trace_id=course.run.trace_id)
        change = InvocationChange(call.id, effect.result.status, OPEN_CALLS, context_updates=effect.context_updates)

        def build() -> Entry:
            turn = course.latest_turn()
            if turn is None or any(r.invocation_id != call.id for r in turn.unanswered):
                return Entry((event,), changes=(change,))
            course.count(turn)
            return Entry(
                (event,),
                run=RunChange(tool_call_count=course.tool_call_count),
                changes=(change,),
                checkpoint=course.checkpoint("tool_call"),
            )

        try:
            await course.journal.append(build)
        except AlreadyAnswered:
            _log.warning("tool.result_dropped", invocation_id=str(call.id), reason="already answered")
            await course.journal.catch_up()
        else:
            course.keep_updates(call, effect.context_updates)

    async def _inlined(self, course: Course, effect: Effect) -> Effect:
        inliner = Inliner(
            self._artifacts, course.run.ref.session, course.run.ref.run_id, self._settings.inline_payload_bytes
        )
        try:
            data = await inliner.json(effect.result.data)
        except InvalidPayload as error:
            told = {"data": None, "code": "result_too_large", "message": str(error)}
            return replace(effect, result=effect.result.model_copy(update=told))
        if not isinstance(data, ArtifactRef):
            return effect
        return replace(effect, result=effect.result.model_copy(update={"data": None, "artifact": data}))

    async def _argument_text(self, course: Course, proposed: ProposedCall) -> str:
        if not isinstance(proposed.arguments, ArtifactRef):
            return proposed.arguments
        if self._artifacts is None:
            raise InvalidPayload("the arguments are kept as an artifact, and no artifact store is configured")
        return (await self._artifacts.fetch(course.run.ref.session, proposed.arguments)).decode()


def check_finished(course: Course, tasks: "list[asyncio.Task[None]]") -> None:
    """Tell why calls were left: the run was called away."""
    if any(task.cancelled() for task in tasks) or interrupted(course.holding):
        check(course.holding)


@contextmanager
def _staying(holding: Holding, call: Invocation) -> Iterator[None]:
    """A call that nobody may repeat is under way: its lease is kept while the process drains."""
    unrepeatable = not call.idempotency_class.repeatable
    holding.unrepeatable += unrepeatable
    try:
        yield
    finally:
        holding.unrepeatable -= unrepeatable


def _context(course: Course, call: Invocation) -> ToolCall:
    return ToolCall(
        key=call.idempotency_key,
        tool=call.tool,
        run=course.run.ref,
        scope=course.run.scope,
        step=call.step,
        position=call.position,
        attempt=call.attempt + 1,
    )


def _unknown_outcome() -> CallResult:
    return CallResult(
        status=InvocationStatus.UNCERTAIN,
        code="outcome_unknown",
        message="the call was started and its worker was lost: it may or may not have happened; do not assume either",
    )


def _gone(tool: str) -> CallResult:
    return CallResult(
        status=InvocationStatus.REFUSED, code="unknown_tool", message=f"there is no tool named {tool!r} any more"
    )


def _invalid(error: Exception) -> CallResult:
    message = describe(error).partition(": ")[2] or "invalid arguments"
    return CallResult(status=InvocationStatus.REFUSED, code="invalid_arguments", message=message)

"""Runs whose first holder wrote their log by hand, item by item, and then died: on any store."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from support.contract import EVERY_CLASS, TERM, Store, later
from support.runs import office
from wakeful.app import App, ModelResponse, ToolCall
from wakeful.domain.agents import Agent
from wakeful.domain.appends import Append, RunChange
from wakeful.domain.checkpoints import BudgetState, CheckpointState, NewCheckpoint, PendingBatch
from wakeful.domain.closing import OPEN_CALLS, result_event
from wakeful.domain.content import CallResult, Usage
from wakeful.domain.drivers import Turn, View
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import RunCheckpointed, RunStarted
from wakeful.domain.events.turns import AssistantMessageCreated, CallStarted, ModelResponseCompleted
from wakeful.domain.history import Conversation, TurnEntry
from wakeful.domain.ids import derived_id, invocation_id, new_id
from wakeful.domain.invocations import Invocation, InvocationChange
from wakeful.domain.ports.run_queue import Execution
from wakeful.domain.runs import Budget, Claim, Lease, Message, Run, Submission
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import InvocationStatus
from wakeful.models.scripted import Line
from wakeful.runtime.agent_driver import AgentDriver
from wakeful.runtime.executor import Executor
from wakeful.runtime.holding import Holding
from wakeful.runtime.planning import Planned, Planner, counted_calls

HOLDER = Actor("worker")
DONE = CallResult(status=InvocationStatus.COMPLETED, code="ok", data="done")


class ModelResponseCompletedV1(Payload):
    """As it was written before it said how many calls had been counted before the turn."""

    TYPE: ClassVar[str] = ModelResponseCompleted.TYPE
    VERSION: ClassVar[int] = 1
    step: int
    provider: str = "scripted"
    model: str = "agent"
    finish_reason: str = "stop"
    usage: Usage = Usage()


@dataclass
class Seen:
    """What the outside saw of a run's executions."""

    effects: Counter[str] = field(default_factory=Counter)
    asked: list[int] = field(default_factory=list)
    views: list[View] = field(default_factory=list)


class Past:
    """One run of an agent with this script; `rest` takes it from whatever its log says to its end."""

    def __init__(self, store: Store, script: Sequence[Line], budget: Budget | None = None) -> None:
        self.store, self.script, self.budget = store, list(script), budget or Budget()
        self.seen = Seen()
        self.scope = Scope(new_id(), new_id())
        self.amended: Budget | None = None
        self.step = self.counted = self.counted_through = 0
        self._catalogue = office(self._register, agent=self.script, helper=["Helped."]).app.catalogue(
            make_driver=lambda *args, **options: _Watching(self, AgentDriver(*args, **options))
        )

    def _register(self, app: App) -> None:
        def effect(call: ToolCall, name: str) -> str:
            self.seen.effects[f"{name} {call.step}.{call.position}"] += 1
            call.context_updates["last"] = f"{call.step}.{call.position}"
            call.context_updates[f"{call.step}.{call.position}"] = name
            return "done"

        @app.tool(idempotency="non_idempotent")
        async def pay(call: ToolCall, cents: int) -> str:
            """Pay."""
            return effect(call, "pay")

        @app.tool(idempotency="read_only")
        async def look(call: ToolCall) -> str:
            """Look."""
            return effect(call, "look")

        @app.tool(idempotency="conditionally_idempotent")
        async def put(call: ToolCall) -> str:
            """Put."""
            return effect(call, "put")

        @app.tool(idempotency="non_idempotent", approval=True)
        async def refund(call: ToolCall) -> str:
            """Refund."""
            return effect(call, "refund")

        app.agent("helper", model="scripted:helper", tools=[])
        app.agent("agent", model="scripted:agent", tools=[pay, look, put, refund], asks=True, delegates=["helper"])

    @property
    def agent(self) -> Agent:
        return self._catalogue.agent("agent")

    # -- writing the log by hand

    async def submit(self) -> RunRef:
        session = new_id()
        await self.store.sessions.create(NewSession(self.scope, "agent", session_id=session))
        submission = Submission(self.scope, session, "agent", 1, messages=(Message("Go"),), budget=self.budget)
        self.ref = (await self.store.queue.submit(submission)).run
        return self.ref

    async def begin(self, *, checkpoint: bool = True) -> None:
        await self.submit()
        self.lease = (await self._claim()).lease
        kept = NewCheckpoint("run_start", self._state()) if checkpoint else None
        event = NewEvent(
            RunStarted(epoch=1), HOLDER, run_id=self.ref.run_id, event_id=derived_id("started", self.ref.run_id)
        )
        await self._append(event, run=RunChange(started=True), checkpoint=kept)

    async def turn(
        self,
        *,
        rows: Iterable[int] | None = None,
        watermark: bool = True,
        refusals: bool = True,
        checkpoint: bool = False,
        pending: Sequence[int] | None = None,
        continuation: str | None = None,
    ) -> None:
        """The script's next line is said. `rows`: the positions that get a row, all of them by default."""
        line = self.script[self.step]
        assert isinstance(line, ModelResponse)
        conversation = await self.conversation()
        self.step += 1
        planned = Planner(self.agent, self.ref.run_id, self.budget.max_tool_calls).plan(
            self.step,
            line.calls,
            conversation,
            count_before=self.counted,
            tools_allowed=self.budget.max_steps is None or self.step < self.budget.max_steps,
        )
        written = [p for p in planned if rows is None or p.call.position in set(rows)]
        saved = [p.call.position for p in planned if p.refusal is None] if pending is None else list(pending)
        batch = PendingBatch(step=self.step, positions=saved) if line.calls else None
        await self._append(
            NewEvent(self._response(line, watermark=watermark), HOLDER, run_id=self.ref.run_id),
            NewEvent(
                AssistantMessageCreated(step=self.step, content=line.content, calls=list(line.calls)),
                HOLDER,
                run_id=self.ref.run_id,
            ),
            *(self._refused(p) for p in written if p.refusal is not None and refusals),
            run=RunChange(step=self.step, add_tokens=line.usage.total),
            proposals=tuple(p.invocation for p in written),
            checkpoint=NewCheckpoint("tool_pending", self._state(batch, continuation)) if checkpoint else None,
        )

    def _response(self, line: ModelResponse, *, watermark: bool) -> Payload:
        if not watermark:
            return ModelResponseCompletedV1(step=self.step, usage=line.usage)
        return ModelResponseCompleted(
            step=self.step,
            provider="scripted",
            model="agent",
            finish_reason=line.finish_reason,
            usage=line.usage,
            tool_call_count_before_turn=self.counted,
        )

    def _refused(self, planned: Planned) -> NewEvent:
        assert planned.refusal is not None
        return result_event(self._without_row(planned.call.position), planned.refusal, HOLDER)

    def _without_row(self, position: int) -> Invocation:
        """What a result has to know of its call."""
        line = self.script[self.step - 1]
        assert isinstance(line, ModelResponse)
        identity = invocation_id(self.ref.run_id, self.step, position)
        tool = line.calls[position].tool
        call: Any = SimpleNamespace(id=identity, run=self.ref, step=self.step, position=position, tool=tool)
        return cast("Invocation", call)

    async def result(self, position: int, *, step: int | None = None, row: bool = True, updates: Any = None) -> None:
        """A call of the newest turn gets its result, and nothing is counted."""
        call = await self.row(position, step) if row else self._without_row(position)
        change = InvocationChange(call.id, DONE.status, OPEN_CALLS, context_updates=updates)
        await self._append(result_event(call, DONE, HOLDER), changes=(change,) if row else ())

    async def started(self, position: int) -> None:
        """A call of the newest turn is RUNNING under the lost epoch."""
        call = await self.row(position)
        said = CallStarted(
            invocation_id=call.id, step=call.step, position=position, tool=call.tool, epoch=self.lease.epoch, attempt=1
        )
        change = InvocationChange(call.id, InvocationStatus.RUNNING, OPEN_CALLS, epoch=self.lease.epoch)
        await self._append(NewEvent(said, HOLDER, run_id=self.ref.run_id), changes=(change,))

    async def count(self, *, checkpoint: bool = False) -> None:
        """The newest batch is counted."""
        turn = (await self.turns())[-1]
        self.counted += counted_calls(turn)
        self.counted_through = self.step
        kept = NewCheckpoint("tool_call", self._state()) if checkpoint else None
        await self._append(self._nothing(), run=RunChange(tool_call_count=self.counted), checkpoint=kept)

    async def answered(self, *, count: bool = True, checkpoint: bool = False) -> None:
        """Every call of the newest turn gets a result."""
        for record in (await self.turns())[-1].unanswered:
            await self.result(record.call.position)
        if count:
            await self.count(checkpoint=checkpoint)

    def _nothing(self) -> NewEvent:
        return NewEvent(RunCheckpointed(trigger="by_hand"), HOLDER, run_id=self.ref.run_id)

    def _state(self, pending: PendingBatch | None = None, continuation: str | None = None) -> CheckpointState:
        budget = BudgetState(
            step=self.step, tool_call_count=self.counted, token_count=0, counted_through_step=self.counted_through
        )
        return CheckpointState(budget=budget, pending=pending, continuation=continuation)

    async def _append(self, *events: NewEvent, **parts: Any) -> None:
        await self.store.log.append(Append(self.ref.session, events, self.lease, **parts))

    # -- looking

    async def row(self, position: int, step: int | None = None) -> Invocation:
        wanted = (self.step if step is None else step, position)
        return next(row for row in await self.rows() if (row.step, row.position) == wanted)

    async def rows(self) -> list[Invocation]:
        return await self.store.runs.invocations(self.scope, self.ref.run_id)

    async def run(self) -> Run:
        return await self.store.runs.get(self.scope, self.ref.run_id)

    async def types(self) -> list[str]:
        return [event.type for event in await self.store.log.read(self.ref.session)]

    async def conversation(self) -> Conversation:
        return Conversation.of(await self.store.log.read(self.ref.session))

    async def turns(self) -> list[TurnEntry]:
        return [entry for entry in (await self.conversation()).entries if isinstance(entry, TurnEntry)]

    # -- going on

    async def crash(self) -> None:
        """The holder is gone: its lease expires and is swept."""
        expired = await self.store.run_sweeps.expired_leases(100, now=later())
        [found] = [each for each in expired if each.run == self.ref]
        await self.store.run_sweeps.reclaim(found, now=later())

    async def load(self) -> tuple[Claim, Execution]:
        """What a new holder finds."""
        claim = await self._claim()
        return claim, self._with_amendment(await self.store.queue.load(claim.lease))

    async def rest(self, claim: Claim | None = None) -> None:
        """Execute the run, and answer what it waits for, until it has ended."""
        for _ in range(12):
            if claim is None:
                claim = await self._claim_if_due()
            if claim is not None:
                await self._executor().execute(Holding(claim, trusted_until=time.monotonic() + 30))
                claim = None
            if (await self.run()).status.terminal:
                return
            await self.arrive()
        raise AssertionError(f"the run never ended: {await self.run()}")

    async def arrive(self) -> None:
        """What the open calls wait for: an answer, an approval, a child's end."""
        for call in await self.rows():
            match call.status:
                case InvocationStatus.AWAITING_INPUT:
                    await self.store.control.answer(self.scope, self.ref.run_id, call.id, "done")
                case InvocationStatus.AWAITING_APPROVAL:
                    await self.store.control.approve(self.scope, self.ref.run_id, call.id)
                case InvocationStatus.AWAITING_CHILD:
                    await self._child_ends()
                case _:
                    pass

    async def _child_ends(self) -> None:
        for claim in await self._claims(["helper"]):
            await self._executor().execute(Holding(claim, trusted_until=time.monotonic() + 30))
        for child in await self.store.child_sweeps.undelivered(100):
            await self.store.child_sweeps.deliver_child(child)

    async def _claims(self, agents: Sequence[str]) -> list[Claim]:
        return await self.store.queue.claim(
            new_id(), capacity=EVERY_CLASS, agents=agents, lease=TERM, suspects=8, now=later(7200)
        )

    async def _claim_if_due(self) -> Claim | None:
        return next((claim for claim in await self._claims(["agent"]) if claim.lease.run == self.ref), None)

    async def _claim(self) -> Claim:
        claim = await self._claim_if_due()
        assert claim is not None
        return claim

    def _executor(self) -> Executor:
        return Executor(
            log=self.store.log,
            queue=_Amended(self),  # type: ignore[arg-type]
            sessions=self.store.sessions,
            catalogue=self._catalogue,
        )

    def _with_amendment(self, execution: Execution) -> Execution:
        if self.amended is None:
            return execution
        return replace(execution, run=replace(execution.run, budget=self.amended))


class _Amended:
    """The store's queue, with the run's budget as it was amended meanwhile."""

    def __init__(self, past: Past) -> None:
        self._past = past

    async def load(self, lease: Lease) -> Execution:
        return self._past._with_amendment(await self._past.store.queue.load(lease))

    async def submit(self, submission: Submission) -> Any:
        return await self._past.store.queue.submit(submission)


class _Watching:
    """A driver that notes what it was shown, and holds the conversation against the log."""

    def __init__(self, past: Past, driver: AgentDriver) -> None:
        self._past, self._driver = past, driver

    async def next_turn(self, view: View) -> Turn:
        if view.run.ref == self._past.ref:
            self._past.seen.asked.append(view.step)
            self._past.seen.views.append(view)
            assert view.conversation.entries == (await self._past.conversation()).entries
        return await self._driver.next_turn(view)

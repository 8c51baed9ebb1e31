"""Rows of the recovery table that no ordinary crash leaves behind: logs of older writers, and gaps between appends."""

from typing import Any

import pytest
from support.runs import Office, office

from wakeful.app import App, ToolCall
from wakeful.domain.appends import Append, RunChange
from wakeful.domain.closing import result_event
from wakeful.domain.content import CallResult, ProposedCall
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import RunStarted
from wakeful.domain.events.turns import AssistantMessageCreated, ModelResponseCompleted
from wakeful.domain.invocations import InvocationChange, NewInvocation
from wakeful.domain.runs import Budget, Claim
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import IdempotencyClass, InvocationStatus, RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.planning import arguments_hash

pytestmark = pytest.mark.anyio

HOLDER = Actor("worker")


class Past:
    """A run whose first holder wrote by hand and then died."""

    def __init__(self, *script: object) -> None:
        self.effects: list[str] = []
        self.office: Office = office(self._register, agent=list(script))  # type: ignore[arg-type]
        self.claim: Claim

    def _register(self, app: App) -> None:
        @app.tool(idempotency="non_idempotent")
        async def pay(call: ToolCall, cents: int) -> str:
            """Pay."""
            self.effects.append(f"pay {cents}")
            return "paid"

        app.agent("agent", model="scripted:agent", tools=[pay])

    async def begin(self, **options: Any) -> RunRef:
        ref = await self.office.submit("agent", "Go", **options)
        [self.claim] = await self.office.claim()
        await self.append(run=RunChange(started=True))
        return ref

    async def append(self, *payloads: Payload | NewEvent, **parts: Any) -> None:
        lease = self.claim.lease
        events = tuple(
            payload if isinstance(payload, NewEvent) else NewEvent(payload, HOLDER, lease.run.run_id)
            for payload in payloads
        )
        noted = events or (NewEvent(_note(), HOLDER, lease.run.run_id),)
        await self.office.store.log.append(Append(lease.run.session, noted, lease, **parts))

    async def turn(self, step: int, *amounts: int, before: int | None, rows: bool = False) -> None:
        proposed = [pay(position, cents) for position, cents in enumerate(amounts)]
        response = ModelResponseCompleted(
            step=step, provider="p", model="m", finish_reason="tool_calls", tool_call_count_before_turn=before
        )
        proposals = tuple(self.row(step, each) for each in proposed) if rows else ()
        message = AssistantMessageCreated(step=step, calls=proposed)
        await self.append(response, message, run=RunChange(step=step), proposals=proposals)

    def row(self, step: int, proposed: ProposedCall) -> NewInvocation:
        return NewInvocation(
            run_id=self.claim.lease.run.run_id,
            step=step,
            position=proposed.position,
            tool=proposed.tool,
            arguments_hash=arguments_hash(proposed.arguments),
            idempotency_class=IdempotencyClass.NON_IDEMPOTENT,
        )

    async def answered(self, ref: RunRef) -> None:
        """Every call gets its result, each in an append of its own that counts nothing."""
        for each in await self.office.calls(ref):
            result = CallResult(status=InvocationStatus.COMPLETED, code="ok", data="paid")
            change = InvocationChange(each.id, result.status, frozenset({InvocationStatus.REQUESTED}))
            await self.append(result_event(each, result, HOLDER), changes=(change,))

    async def resume(self, ref: RunRef) -> None:
        await self.office.expire_leases()
        await self.office.work()
        assert (await self.office.run(ref)).status is RunStatus.COMPLETED


def pay(position: int, cents: int) -> ProposedCall:
    return call("pay", cents=cents).model_copy(update={"position": position})


def _note() -> RunStarted:
    return RunStarted(epoch=1)


async def codes(past: Past, ref: RunRef, turn: int) -> list[str]:
    return [record.result.code if record.result else "" for record in (await past.office.turns(ref))[turn].calls]


@pytest.mark.spec("REC-5")
async def test_a_turn_without_rows_is_fitted_to_the_budget_it_was_proposed_under() -> None:
    past = Past("unused", say("Done."))
    ref = await past.begin(budget=Budget(max_tool_calls=1))
    await past.turn(1, 5, 6, before=0)
    await past.resume(ref)
    assert past.effects == ["pay 5"]
    assert await codes(past, ref, 0) == ["ok", "tool_call_budget"]
    assert (await past.office.run(ref)).tool_call_count == 1


@pytest.mark.spec("REC-5")
async def test_a_refusal_missing_from_the_log_is_recorded_as_the_loop_records_it() -> None:
    past = Past("unused", say("Done."))
    ref = await past.begin(budget=Budget(max_tool_calls=0))
    await past.turn(1, 5, before=0)
    await past.resume(ref)
    assert past.effects == []
    assert (await past.office.types(ref)).count("tool.call.refused") == 1


@pytest.mark.spec("REC-6")
async def test_a_recovered_turn_passes_the_repeated_call_guard() -> None:
    again = calls(call("pay", cents=5))
    past = Past("unused", "unused", "unused", say("Done."), again)
    ref = await past.begin()
    for step in (1, 2):
        await past.turn(step, 5, before=step - 1, rows=True)
        for each in await past.office.calls(ref):
            if not each.status.terminal:
                result = CallResult(status=InvocationStatus.COMPLETED, code="ok", data="paid")
                change = InvocationChange(each.id, result.status, frozenset({InvocationStatus.REQUESTED}))
                await past.append(result_event(each, result, HOLDER), changes=(change,))
    await past.turn(3, 5, before=2)
    await past.resume(ref)
    assert await codes(past, ref, 2) == ["repeated_call"]
    assert past.effects == []


@pytest.mark.spec("REC-6")
@pytest.mark.parametrize("lose", [False, True], ids=["with_checkpoints", "without_checkpoints"])
async def test_an_answered_batch_that_nobody_counted_is_counted_once(lose: bool) -> None:
    past = Past("unused", say("Done."))
    ref = await past.begin()
    await past.turn(1, 5, 6, before=0, rows=True)
    await past.answered(ref)
    assert (await past.office.run(ref)).tool_call_count == 0
    if lose:
        await past.office.store.checkpoints.drop(ref)
    await past.resume(ref)
    assert past.effects == []
    assert (await past.office.run(ref)).tool_call_count == 2


@pytest.mark.spec("REC-6", "UPC-2")
async def test_a_turn_without_the_watermark_keeps_the_runs_own_count() -> None:
    past = Past("unused", say("Done."))
    ref = await past.begin(budget=Budget(max_tool_calls=5))
    await past.turn(1, 5, 6, before=None, rows=True)
    await past.answered(ref)
    await past.resume(ref)
    assert (await past.office.run(ref)).tool_call_count == 0


@pytest.mark.spec("REC-3")
async def test_only_the_newest_turns_unanswered_calls_are_dispatched() -> None:
    """An older turn left a call open (which no writer of today can do): it is not run behind a newer one."""
    past = Past("unused", "unused", say("Done."))
    ref = await past.begin()
    await past.turn(1, 5, before=0)
    await past.turn(2, 6, before=1, rows=True)
    await past.resume(ref)
    assert past.effects == ["pay 6"]


@pytest.mark.spec("REC-4")
async def test_a_committed_final_reply_completes_the_run_without_asking_again() -> None:
    past = Past()
    ref = await past.begin()
    response = ModelResponseCompleted(
        step=1, provider="p", model="m", finish_reason="stop", tool_call_count_before_turn=0
    )
    reply = AssistantMessageCreated(step=1, content="Here.")
    await past.append(response, reply, run=RunChange(step=1))
    await past.resume(ref)
    assert (await past.office.types(ref)).count("assistant.message.created") == 1


@pytest.mark.spec("CKP-4")
@pytest.mark.gate("checkpoint_dispensable")
@pytest.mark.parametrize("newest", [1, 2, 3, 4, None])
async def test_losing_any_checkpoint_suffix_costs_no_effect_and_no_turn(newest: int | None) -> None:
    past = Past(*[calls(call("pay", cents=cents)) for cents in (1, 2, 3)], say("Done."))
    ref = await past.begin()
    executor, holding = past.office.executor(), past.office.holding(past.claim)
    holding.draining = True
    await executor.execute(holding)
    for _ in range(3):
        [claim] = await past.office.claim()
        holding = past.office.holding(claim)
        stop_after_a_call(past, holding)
        await past.office.executor().execute(holding)
        await past.office.store.checkpoints.drop(ref, newest=newest)
    await past.office.work()
    run = await past.office.run(ref)
    assert (run.status, run.tool_call_count) == (RunStatus.COMPLETED, 3)
    assert past.effects == ["pay 1", "pay 2", "pay 3"]
    assert len(await past.office.turns(ref)) == 4


def stop_after_a_call(past: Past, holding: object) -> None:
    """Ask the run back as soon as the next effect has happened."""

    class Effects(list[str]):
        def append(self, item: str) -> None:
            super().append(item)
            holding.draining = True  # type: ignore[attr-defined]

    past.effects = Effects(past.effects)

"""What a lease holder may change with its events: its run, its calls and its checkpoint, all or nothing."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.contract import World, call, checkpoint, later, note, result, turn_of

from wakeful.domain.appends import RunChange
from wakeful.domain.content import Failure
from wakeful.domain.errors import (
    AlreadyAnswered,
    Arrived,
    CallMismatch,
    CancelAsked,
    WakefulError,
)
from wakeful.domain.events.turns import CallCompleted, CallFailed
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

TERMINAL = [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]


@pytest.mark.parametrize("status", [*TERMINAL, RunStatus.QUEUED])
async def test_leaving_running_gives_the_lease_back(world: World, status: RunStatus) -> None:
    lease = await world.running()
    await (world.hand_back(lease) if status is RunStatus.QUEUED else world.end(lease, status))
    run = (await world.facts(lease.run)).run
    assert run.status is status
    assert (run.lease_owner, run.lease_expires_at) == (None, None)
    assert run.lease_epoch == lease.epoch


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_terminal_append_stamps_when_the_run_ended(world: World, status: RunStatus) -> None:
    lease = await world.running()
    appended = await world.end(lease, status)
    assert (await world.facts(lease.run)).run.finished_at == appended.at


async def test_a_start_is_stamped_once(world: World) -> None:
    lease = await world.running()
    started = (await world.facts(lease.run)).run.started_at
    assert started is not None
    await world.append(lease, note(), run=RunChange(started=True))
    assert (await world.facts(lease.run)).run.started_at == started


async def test_a_committed_step_is_recorded(world: World) -> None:
    lease = await world.running()
    await world.turn(lease, step=1)
    await world.turn(lease, step=2)
    assert (await world.facts(lease.run)).run.step == 2


async def test_a_committed_step_clears_the_suspicion_and_no_other_append_does(world: World) -> None:
    await world.crashed(await world.running())
    lease = await world.claim(now=later())
    await world.append(lease, note())
    assert (await world.facts(lease.run)).run.suspect
    await world.turn(lease)
    run = (await world.facts(lease.run)).run
    assert not run.suspect
    assert run.lease_expirations == 1


async def test_the_tool_call_count_is_the_greatest_it_was_ever_set_to(world: World) -> None:
    lease = await world.running()
    for count in (3, 2, 5, 5):
        await world.append(lease, note(), run=RunChange(tool_call_count=count))
    assert (await world.facts(lease.run)).run.tool_call_count == 5


async def test_tokens_add_up(world: World) -> None:
    lease = await world.running()
    for tokens in (100, 23):
        await world.append(lease, note(), run=RunChange(add_tokens=tokens))
    assert (await world.facts(lease.run)).run.token_count == 123


async def test_a_failure_is_kept_as_plain_data(world: World) -> None:
    lease = await world.running()
    failure = Failure(code="budget_exceeded", message="no steps left", step=3, attempts=[{"epoch": 1}])
    await world.append(lease, note(), run=RunChange(RunStatus.FAILED, failure=failure))
    assert (await world.facts(lease.run)).run.failure == failure


async def test_a_run_handed_back_with_a_delay_is_not_due_before_it_has_passed(world: World) -> None:
    lease = await world.running()
    await world.hand_back(lease, delay=timedelta(minutes=10))
    assert await world.claims() == []
    assert await world.claims(now=later(500)) == []
    assert len(await world.claims(now=later(700))) == 1


async def test_a_run_handed_back_counts_no_crash_and_is_due_at_once(world: World) -> None:
    lease = await world.running()
    await world.hand_back(lease)
    again = await world.claim()
    assert again.epoch == lease.epoch + 1
    run = (await world.facts(lease.run)).run
    assert (run.lease_expirations, run.suspect, run.attempts) == (0, False, 2)


@pytest.mark.parametrize(
    ("calls", "status"),
    [
        ([InvocationStatus.AWAITING_CHILD], RunStatus.WAITING_CHILD),
        ([InvocationStatus.AWAITING_INPUT, InvocationStatus.AWAITING_CHILD], RunStatus.WAITING_INPUT),
        ([InvocationStatus.AWAITING_CHILD, InvocationStatus.AWAITING_APPROVAL], RunStatus.WAITING_APPROVAL),
        ([InvocationStatus.AWAITING_INPUT, InvocationStatus.AWAITING_APPROVAL], RunStatus.WAITING_APPROVAL),
    ],
)
async def test_a_run_waits_for_approval_before_input_before_a_child(
    world: World, calls: list[InvocationStatus], status: RunStatus
) -> None:
    run, _ = await world.waiting(*calls)
    facts = await world.facts(run)
    assert facts.run.status is status
    assert (facts.run.lease_owner, facts.run.lease_expires_at) == (None, None)
    assert facts.types[-1] == "run.waiting"


async def test_waiting_is_refused_when_the_answer_arrived_in_between(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.turn(lease, question)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "yes")
    before = await world.facts(lease.run)
    with pytest.raises(Arrived):
        await world.park(lease, RunStatus.WAITING_INPUT)
    assert await world.facts(lease.run) == before


async def test_waiting_for_something_else_than_the_open_calls_call_for_is_refused(world: World) -> None:
    lease = await world.running()
    await world.turn(lease, call(lease.run, status=InvocationStatus.AWAITING_APPROVAL))
    with pytest.raises(Arrived):
        await world.park(lease, RunStatus.WAITING_INPUT)


async def test_waiting_is_refused_while_a_call_can_be_executed(world: World) -> None:
    lease = await world.running()
    question, allowed = (call(lease.run, place, status=InvocationStatus.AWAITING_INPUT) for place in (0, 1))
    allowed = replace(allowed, status=InvocationStatus.AWAITING_APPROVAL)
    await world.turn(lease, question, allowed)
    await world.store.control.approve(world.scope, lease.run.run_id, allowed.id)
    with pytest.raises(Arrived):
        await world.park(lease, RunStatus.WAITING_INPUT)


async def test_waiting_is_judged_with_the_calls_of_the_very_append(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.append(lease, turn_of(), run=RunChange(RunStatus.WAITING_INPUT, step=1), proposals=(question,))
    assert (await world.facts(lease.run)).run.status is RunStatus.WAITING_INPUT


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.WAITING_INPUT])
async def test_a_run_that_was_asked_to_cancel_may_not_be_released_to_go_on_later(
    world: World, status: RunStatus
) -> None:
    lease = await world.running()
    await world.turn(lease, call(lease.run, status=InvocationStatus.AWAITING_INPUT))
    await world.store.control.cancel(world.scope, lease.run.run_id)
    before = await world.facts(lease.run)
    with pytest.raises(CancelAsked):
        await (world.hand_back(lease) if status is RunStatus.QUEUED else world.park(lease, status))
    assert await world.facts(lease.run) == before


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_run_that_was_asked_to_cancel_may_be_ended_by_its_holder(world: World, status: RunStatus) -> None:
    lease = await world.running()
    await world.store.control.cancel(world.scope, lease.run.run_id)
    await world.end(lease, status)
    assert (await world.facts(lease.run)).run.status is status


async def test_every_append_tells_the_holder_whether_cancelling_was_asked(world: World) -> None:
    lease = await world.running()
    request = world.request(lease, note())
    assert not (await world.store.log.append(request)).cancel_requested
    await world.store.control.cancel(world.scope, lease.run.run_id)
    assert (await world.append(lease, note())).cancel_requested
    assert (await world.store.log.append(request)).cancel_requested


@pytest.mark.parametrize(
    "status", [InvocationStatus.REQUESTED, InvocationStatus.RUNNING, InvocationStatus.AWAITING_INPUT]
)
async def test_a_run_cannot_end_while_a_call_has_no_result(world: World, status: InvocationStatus) -> None:
    lease = await world.running()
    new = call(lease.run, status=InvocationStatus.REQUESTED if status is InvocationStatus.RUNNING else status)
    await world.turn(lease, new)
    if status is InvocationStatus.RUNNING:
        await world.start_call(lease, new)
    before = await world.facts(lease.run)
    with pytest.raises(WakefulError):
        await world.end(lease)
    assert await world.facts(lease.run) == before


async def test_a_run_may_end_in_the_append_that_gives_its_last_call_a_result(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    ending = world.ending(lease, new, CallCompleted, result())
    await world.store.log.append(replace(ending, run=RunChange(RunStatus.COMPLETED)))
    facts = await world.facts(lease.run)
    assert facts.run.status is RunStatus.COMPLETED
    assert facts.status_of(new.id) is InvocationStatus.COMPLETED


async def test_a_proposed_call_is_recorded_with_its_turn(world: World) -> None:
    lease = await world.running()
    new = call(lease.run, 2, step=3, provider_call_id="p7", tool="mail", arguments_hash="b" * 64)
    appended = await world.turn(lease, new, step=3)
    (stored,) = (await world.facts(lease.run)).calls
    assert (stored.id, stored.run, stored.idempotency_key) == (new.id, lease.run, str(new.id))
    assert (stored.step, stored.position, stored.tool, stored.provider_call_id) == (3, 2, "mail", "p7")
    assert (stored.status, stored.attempt, stored.epoch) == (InvocationStatus.REQUESTED, 0, None)
    assert stored.created_at == appended.at


async def test_a_question_stays_open_for_its_time_from_the_append_on(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT, expires_in=timedelta(minutes=5))
    appended = await world.turn(lease, question)
    (stored,) = (await world.facts(lease.run)).calls
    assert stored.expires_at == appended.at + timedelta(minutes=5)


async def test_a_call_proposed_again_is_the_same_call(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    await world.start_call(lease, new)
    before = (await world.facts(lease.run)).calls
    await world.turn(lease, new)
    assert (await world.facts(lease.run)).calls == before


@pytest.mark.parametrize("other", [{"tool": "another"}, {"arguments_hash": "f" * 64}])
async def test_another_call_at_the_same_place_is_a_mismatch_that_leaves_nothing_behind(
    world: World, other: dict[str, Any]
) -> None:
    lease = await world.running()
    await world.turn(lease, call(lease.run))
    before = await world.facts(lease.run)
    with pytest.raises(CallMismatch):
        await world.turn(lease, call(lease.run, 1), call(lease.run, **other))
    assert await world.facts(lease.run) == before


async def test_an_intent_records_epoch_attempt_and_first_start(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    first = await world.start_call(lease, new)
    await world.start_call(lease, new)
    (stored,) = (await world.facts(lease.run)).calls
    assert (stored.status, stored.epoch, stored.attempt) == (InvocationStatus.RUNNING, lease.epoch, 2)
    assert stored.started_at == first.at


async def test_a_result_ends_its_call_and_keeps_its_context_updates(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    ending = world.ending(lease, new, CallCompleted, result(data={"n": [1, 2]}), context_updates={"cart": ["a"]})
    appended = await world.store.log.append(ending)
    facts = await world.facts(lease.run)
    (stored,) = facts.calls
    assert (stored.status, stored.finished_at) == (InvocationStatus.COMPLETED, appended.at)
    assert stored.context_updates == {"cart": ["a"]}
    assert facts.result_of(new.id).data == {"n": [1, 2]}


async def test_a_result_that_somebody_else_gave_is_no_repetition_of_ones_own(world: World) -> None:
    """A result's event id is the call's, so the id alone does not say whose result stands there."""
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.turn(lease, question)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "first")
    before = await world.facts(lease.run)
    with pytest.raises(AlreadyAnswered):
        await world.store.log.append(world.ending(lease, question, CallCompleted, result()))
    assert await world.facts(lease.run) == before


async def test_a_call_has_one_result_and_a_second_is_refused_whoever_writes_it(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.turn(lease, question)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "first")
    before = await world.facts(lease.run)
    second = world.ending(lease, question, CallFailed, result(InvocationStatus.FAILED))
    with pytest.raises(AlreadyAnswered):
        await world.store.log.append(replace(second, events=(*second.events, *world.request(lease, note()).events)))
    assert await world.facts(lease.run) == before


async def test_a_transition_from_an_unexpected_state_is_refused_and_leaves_nothing_behind(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    await world.store.log.append(world.ending(lease, new, CallCompleted, result()))
    before = await world.facts(lease.run)
    with pytest.raises(AlreadyAnswered):
        await world.start_call(lease, new)
    assert await world.facts(lease.run) == before


async def test_a_checkpoint_without_a_watermark_is_taken_through_its_own_append(world: World) -> None:
    lease = await world.running()
    appended = await world.append(lease, note(), note(), checkpoint=checkpoint("turn", summary="so far"))
    stored = (await world.facts(lease.run)).checkpoint
    assert stored is not None
    assert (stored.last_event_sequence, stored.epoch, stored.trigger) == (appended.last_sequence, lease.epoch, "turn")
    assert stored.state.summary == "so far"


async def test_a_checkpoint_keeps_the_watermark_it_names(world: World) -> None:
    lease = await world.running()
    await world.append(lease, note(), checkpoint=replace(checkpoint(), last_event_sequence=2))
    stored = (await world.facts(lease.run)).checkpoint
    assert stored is not None
    assert stored.last_event_sequence == 2

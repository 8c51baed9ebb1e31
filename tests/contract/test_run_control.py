"""Run control: what owners and other runs do, each edge judged under the locks and taken once."""

import pytest
from support.contract import World, call, later, outcomes, result, resumed_by

from wakeful.domain.edges import MAX_ANSWER_BYTES
from wakeful.domain.errors import AlreadyAnswered, Conflict, InvalidPayload, RunEnded
from wakeful.domain.events.runs import RunCancelled, RunCancelRequested, RunWaiting
from wakeful.domain.ids import new_id
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

APPROVAL, INPUT, CHILD = (
    InvocationStatus.AWAITING_APPROVAL,
    InvocationStatus.AWAITING_INPUT,
    InvocationStatus.AWAITING_CHILD,
)


# Cancelling


async def test_a_queued_run_is_cancelled_at_once(world: World) -> None:
    run = await world.queued()
    answer = await world.store.control.cancel(world.scope, run.run_id, reason="not needed")
    assert (answer.run, answer.status, answer.applied) == (run, RunStatus.CANCELLED, True)
    facts = await world.facts(run)
    assert facts.run.status is RunStatus.CANCELLED
    assert facts.run.finished_at == facts.events[-1].created_at
    assert facts.events[-1].payload == RunCancelled(reason="not needed")
    assert facts.events[-1].actor.type == "user"
    assert await world.claims(now=later()) == []


async def test_a_waiting_run_is_cancelled_at_once_and_every_open_call_has_its_result(world: World) -> None:
    run, calls = await world.waiting(INPUT, APPROVAL)
    await world.store.control.cancel(world.scope, run.run_id)
    facts = await world.facts(run)
    assert facts.run.status is RunStatus.CANCELLED
    for waiting in calls:
        assert facts.status_of(waiting.id) is InvocationStatus.CANCELLED
        assert facts.result_of(waiting.id).status is InvocationStatus.CANCELLED
    assert facts.types[-3:] == ["tool.call.cancelled", "tool.call.cancelled", "run.cancelled"]


async def test_a_running_run_is_asked_to_cancel_and_its_holder_keeps_it(world: World) -> None:
    lease = await world.running()
    answer = await world.store.control.cancel(world.scope, lease.run.run_id, reason="stop")
    assert (answer.status, answer.applied) == (RunStatus.RUNNING, True)
    facts = await world.facts(lease.run)
    assert (facts.run.status, facts.run.lease_owner) == (RunStatus.RUNNING, world.owner)
    assert facts.run.cancel_requested_at == facts.events[-1].created_at
    assert facts.events[-1].payload == RunCancelRequested(reason="stop")


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.COMPLETED])
async def test_cancelling_again_or_too_late_changes_nothing(world: World, status: RunStatus) -> None:
    lease = await world.running()
    if status is RunStatus.RUNNING:
        await world.store.control.cancel(world.scope, lease.run.run_id)
    else:
        await world.end(lease, status)
    before = await world.facts(lease.run)
    answer = await world.store.control.cancel(world.scope, lease.run.run_id)
    assert (answer.status, answer.applied) == (status, False)
    assert await world.facts(lease.run) == before


async def test_a_cancelled_run_frees_its_session(world: World) -> None:
    run = await world.queued()
    session = (await world.facts(run)).session
    await world.store.control.cancel(world.scope, run.run_id)
    assert (await world.store.queue.submit(world.submission(session, "next"))).created


# Answering


async def test_an_answer_is_the_result_of_its_question_and_lets_the_run_go_on(world: World) -> None:
    run, (question,) = await world.waiting(INPUT)
    answer = await world.store.control.answer(world.scope, run.run_id, question.id, {"size": [42, "é"]})
    assert (answer.status, answer.applied) == (RunStatus.QUEUED, True)
    facts = await world.facts(run)
    assert facts.run.status is RunStatus.QUEUED
    assert facts.status_of(question.id) is InvocationStatus.COMPLETED
    assert facts.result_of(question.id).data == {"size": [42, "é"]}
    assert facts.types[-2:] == ["tool.call.completed", "run.requeued"]
    assert resumed_by(facts).reason == "input"
    assert facts.events[-2].actor.id == str(world.scope.principal_id)


@pytest.mark.spec("QUE-6")
async def test_going_on_after_an_answer_counts_no_crash_and_waits_for_no_backoff(world: World) -> None:
    run, (question,) = await world.waiting(INPUT)
    await world.store.control.answer(world.scope, run.run_id, question.id, "yes")
    stored = (await world.facts(run)).run
    assert (stored.lease_expirations, stored.suspect, stored.scheduled_for) == (0, False, None)
    assert (await world.claim()).epoch == 2


@pytest.mark.spec("QUE-6")
async def test_going_on_after_an_answer_keeps_the_crashes_counted_before(world: World) -> None:
    await world.crashed(await world.running())
    lease = await world.claim(now=later())
    question = call(lease.run, status=INPUT)
    await world.turn(lease, question)
    await world.park(lease, RunStatus.WAITING_INPUT)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "yes")
    assert (await world.facts(lease.run)).run.lease_expirations == 1


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.QUEUED])
async def test_a_question_may_be_answered_before_its_run_waits_for_it(world: World, status: RunStatus) -> None:
    lease = await world.running()
    question = call(lease.run, status=INPUT)
    await world.turn(lease, question)
    if status is RunStatus.QUEUED:
        await world.hand_back(lease)
    answer = await world.store.control.answer(world.scope, lease.run.run_id, question.id, "yes")
    assert (answer.status, answer.applied) == (status, True)
    facts = await world.facts(lease.run)
    assert (facts.run.status, facts.types[-1]) == (status, "tool.call.completed")


async def test_a_question_has_one_answer(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=INPUT)
    await world.turn(lease, question)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "first")
    before = await world.facts(lease.run)
    for event_id in (None, new_id()):
        with pytest.raises(AlreadyAnswered):
            await world.store.control.answer(world.scope, lease.run.run_id, question.id, "second", event_id=event_id)
    assert await world.facts(lease.run) == before


async def test_of_many_answers_at_once_one_is_taken(world: World) -> None:
    run, (question,) = await world.waiting(INPUT)
    answers, raised = await outcomes(
        *(world.store.control.answer(world.scope, run.run_id, question.id, number) for number in range(5))
    )
    assert len(answers) == 1
    assert [type(error) for error in raised] == [AlreadyAnswered] * 4
    facts = await world.facts(run)
    assert facts.result_of(question.id).data in range(5)
    assert facts.types.count("run.requeued") == 1


async def test_the_same_answer_again_returns_the_first_success(world: World) -> None:
    run, (question,) = await world.waiting(INPUT)
    event_id = new_id()
    first = await world.store.control.answer(world.scope, run.run_id, question.id, "yes", event_id=event_id)
    before = await world.facts(run)
    again = await world.store.control.answer(world.scope, run.run_id, question.id, "yes", event_id=event_id)
    assert (first.applied, again.applied) == (True, False)
    assert again.status is RunStatus.QUEUED
    assert await world.facts(run) == before


async def test_the_same_answer_again_succeeds_after_the_run_has_ended(world: World) -> None:
    run, (question,) = await world.waiting(INPUT)
    event_id = new_id()
    await world.store.control.answer(world.scope, run.run_id, question.id, "yes", event_id=event_id)
    await world.end(await world.claim())
    again = await world.store.control.answer(world.scope, run.run_id, question.id, "yes", event_id=event_id)
    assert (again.status, again.applied) == (RunStatus.COMPLETED, False)


async def test_a_call_that_is_no_question_cannot_be_answered(world: World) -> None:
    lease = await world.running()
    plain = call(lease.run)
    await world.turn(lease, plain)
    before = await world.facts(lease.run)
    with pytest.raises(Conflict):
        await world.store.control.answer(world.scope, lease.run.run_id, plain.id, "yes")
    assert await world.facts(lease.run) == before


async def test_a_question_of_a_run_that_has_ended_cannot_be_answered(world: World) -> None:
    run, (question,) = await world.waiting(INPUT)
    await world.store.control.cancel(world.scope, run.run_id)
    with pytest.raises(RunEnded):
        await world.store.control.answer(world.scope, run.run_id, question.id, "yes")


@pytest.mark.parametrize("value", ["a\x00b", {"n": float("nan")}, "x" * (MAX_ANSWER_BYTES + 1), {1, 2}])
async def test_an_answer_that_cannot_be_kept_is_refused_and_the_question_stays_open(
    world: World, value: object
) -> None:
    run, (question,) = await world.waiting(INPUT)
    before = await world.facts(run)
    with pytest.raises(InvalidPayload):
        await world.store.control.answer(world.scope, run.run_id, question.id, value)
    assert await world.facts(run) == before


async def test_a_run_goes_on_when_the_last_of_its_questions_is_answered(world: World) -> None:
    run, (first, second) = await world.waiting(INPUT, INPUT)
    answer = await world.store.control.answer(world.scope, run.run_id, first.id, 1)
    assert answer.status is RunStatus.WAITING_INPUT
    answer = await world.store.control.answer(world.scope, run.run_id, second.id, 2)
    assert answer.status is RunStatus.QUEUED
    assert (await world.facts(run)).types.count("run.requeued") == 1


async def test_what_a_run_waits_for_is_computed_again_with_every_answer(world: World) -> None:
    run, (question, approval, child) = await world.waiting(INPUT, APPROVAL, CHILD)
    control = world.store.control
    assert (await control.approve(world.scope, run.run_id, approval.id)).status is RunStatus.WAITING_INPUT
    facts = await world.facts(run)
    waiting = facts.events[-1].payload
    assert isinstance(waiting, RunWaiting)
    assert (waiting.status, set(waiting.calls)) == ("WAITING_INPUT", {question.id, child.id})
    assert (await control.answer(world.scope, run.run_id, question.id, 1)).status is RunStatus.WAITING_CHILD
    assert (await control.deliver(run, child.id, result())).status is RunStatus.QUEUED

"""Cancel, answer, approve, deny, resolve and deliver, one at a time."""

from uuid import uuid4

import pytest
from support.acting import World

from wakeful.domain.content import CallResult
from wakeful.domain.errors import AlreadyAnswered, Conflict, InvalidPayload, NotFound, RunEnded
from wakeful.domain.scopes import Scope
from wakeful.domain.states import IdempotencyClass, InvocationStatus, RunStatus

pytestmark = pytest.mark.anyio

ADA = Scope(uuid4(), uuid4())


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.WAITING_INPUT, RunStatus.WAITING_CHILD])
async def test_cancelling_an_unheld_run_ends_it_at_once(world: World, status: RunStatus) -> None:
    run = await world.run(status, scope=ADA)
    done = await world.control.cancel(ADA, run.run_id, reason="changed my mind")
    assert (done.run, done.status, done.applied) == (run, RunStatus.CANCELLED, True)
    assert await world.types(run) == ["run.cancelled"]
    row = await world.row(run)
    assert row["finished_at"] is not None


async def test_cancelling_a_running_run_asks_its_holder_once(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, scope=ADA)
    first = await world.control.cancel(ADA, run.run_id)
    again = await world.control.cancel(ADA, run.run_id)
    assert (first.status, first.applied, again.applied) == (RunStatus.RUNNING, True, False)
    assert await world.types(run) == ["run.cancel_requested"]
    row = await world.row(run)
    assert row["cancel_requested_at"] is not None
    assert row["lease_owner"] is not None


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
async def test_cancelling_an_ended_run_changes_nothing(world: World, status: RunStatus) -> None:
    run = await world.run(status, scope=ADA)
    done = await world.control.cancel(ADA, run.run_id)
    assert (done.status, done.applied) == (status, False)
    assert await world.types(run) == []


async def test_the_last_answer_makes_a_waiting_run_claimable_without_counting_a_crash(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA, lease_expirations=1)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    done = await world.control.answer(ADA, run.run_id, call, {"city": "Utrecht"})
    assert done.status is RunStatus.QUEUED
    answered, requeued = await world.events(run)
    assert answered["type"] == "tool.call.completed"
    assert answered["payload"]["result"]["data"] == {"city": "Utrecht"}
    assert (requeued["type"], requeued["payload"]["reason"]) == ("run.requeued", "input")
    row = await world.row(run)
    assert (row["lease_expirations"], row["suspect"], row["scheduled_for"]) == (1, False, None)


async def test_while_other_calls_are_open_the_run_keeps_waiting_for_them(world: World) -> None:
    run = await world.run(RunStatus.WAITING_APPROVAL, scope=ADA)
    asked = await world.call(run, InvocationStatus.AWAITING_INPUT, position=0)
    wanted = await world.call(run, InvocationStatus.AWAITING_APPROVAL, position=1)
    allowed = await world.control.approve(ADA, run.run_id, wanted)
    assert allowed.status is RunStatus.WAITING_INPUT
    assert (await world.calls(run))[wanted] is InvocationStatus.REQUESTED
    approved, waiting = await world.events(run)
    assert approved["type"] == "tool.call.approved"
    assert waiting["payload"] == {"status": "WAITING_INPUT", "calls": [str(asked)]}
    answered = await world.control.answer(ADA, run.run_id, asked, "yes")
    assert answered.status is RunStatus.QUEUED


async def test_of_two_approvals_the_first_leaves_the_run_waiting_and_the_second_queues_it(world: World) -> None:
    run = await world.run(RunStatus.WAITING_APPROVAL, scope=ADA)
    calls = [await world.call(run, InvocationStatus.AWAITING_APPROVAL, position=n) for n in range(2)]
    first = await world.control.approve(ADA, run.run_id, calls[0])
    second = await world.control.approve(ADA, run.run_id, calls[1], note="go on")
    assert (first.status, second.status) == (RunStatus.WAITING_APPROVAL, RunStatus.QUEUED)
    events = await world.events(run)
    assert [event["type"] for event in events] == ["tool.call.approved", "tool.call.approved", "run.requeued"]
    assert events[-1]["payload"]["reason"] == "approval"


async def test_an_approved_call_is_requested_again_and_names_who_allowed_it(world: World) -> None:
    run = await world.run(RunStatus.WAITING_APPROVAL, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_APPROVAL)
    await world.control.approve(ADA, run.run_id, call)
    (stored,) = await world.runs.invocations(ADA, run.run_id)
    assert (stored.status, stored.approved_by) == (InvocationStatus.REQUESTED, str(ADA.principal_id))
    assert stored.finished_at is None


async def test_a_denial_is_the_result_of_its_call(world: World) -> None:
    run = await world.run(RunStatus.WAITING_APPROVAL, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_APPROVAL)
    done = await world.control.deny(ADA, run.run_id, call, note="too much money")
    assert done.status is RunStatus.QUEUED
    denied = (await world.events(run))[0]
    assert denied["type"] == "tool.call.denied"
    result = denied["payload"]["result"]
    assert (result["status"], result["code"], result["message"]) == ("DENIED", "denied", "too much money")


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.RUNNING])
async def test_an_answer_leaves_the_status_of_a_run_that_does_not_wait(world: World, status: RunStatus) -> None:
    run = await world.run(status, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    done = await world.control.answer(ADA, run.run_id, call, "blue")
    assert (done.status, done.applied) == (status, True)
    assert await world.types(run) == ["tool.call.completed"]


async def test_the_same_event_id_again_returns_the_first_success(world: World) -> None:
    run = await world.run(RunStatus.WAITING_APPROVAL, scope=ADA)
    asked = await world.call(run, InvocationStatus.AWAITING_INPUT, position=0)
    wanted = await world.call(run, InvocationStatus.AWAITING_APPROVAL, position=1)
    refused = await world.call(run, InvocationStatus.AWAITING_APPROVAL, position=2)
    ids = [uuid4() for _ in range(3)]

    async def act() -> list[bool]:
        return [
            (await world.control.answer(ADA, run.run_id, asked, "yes", event_id=ids[0])).applied,
            (await world.control.approve(ADA, run.run_id, wanted, event_id=ids[1])).applied,
            (await world.control.deny(ADA, run.run_id, refused, event_id=ids[2])).applied,
        ]

    assert await act() == [True, True, True]
    before = await world.events(run)
    assert await act() == [False, False, False]
    assert await world.events(run) == before


async def test_the_same_event_id_is_recognized_after_the_run_has_ended(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    event_id = uuid4()
    await world.control.answer(ADA, run.run_id, call, "yes", event_id=event_id)
    await world.control.cancel(ADA, run.run_id)
    again = await world.control.answer(ADA, run.run_id, call, "yes", event_id=event_id)
    assert (again.status, again.applied) == (RunStatus.CANCELLED, False)


async def test_another_answer_is_a_conflict(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    await world.control.answer(ADA, run.run_id, call, "yes", event_id=uuid4())
    for event_id in (None, uuid4()):
        with pytest.raises(AlreadyAnswered):
            await world.control.answer(ADA, run.run_id, call, "no", event_id=event_id)
    assert (await world.results(run))[call] == ["COMPLETED"]


async def test_an_approval_of_an_approved_call_is_a_conflict(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_APPROVAL)
    await world.control.approve(ADA, run.run_id, call)
    with pytest.raises(Conflict):
        await world.control.approve(ADA, run.run_id, call)
    with pytest.raises(Conflict):
        await world.control.deny(ADA, run.run_id, call)


async def test_what_is_no_question_cannot_be_answered(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, scope=ADA)
    call = await world.call(run, InvocationStatus.RUNNING)
    with pytest.raises(Conflict, match="does not wait for an answer"):
        await world.control.answer(ADA, run.run_id, call, "yes")
    with pytest.raises(Conflict, match="does not wait for approval"):
        await world.control.approve(ADA, run.run_id, call)


async def test_an_ended_run_takes_no_answer(world: World) -> None:
    run = await world.run(RunStatus.CANCELLED, scope=ADA)
    call = await world.call(run, InvocationStatus.CANCELLED)
    with pytest.raises(RunEnded):
        await world.control.answer(ADA, run.run_id, call, "yes")


async def test_an_answer_that_cannot_be_stored_is_refused_before_anything_is_locked(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    for broken in ("a\x00b", "\ud800", float("nan"), "x" * 300_000):
        with pytest.raises(InvalidPayload):
            await world.control.answer(ADA, run.run_id, call, broken)
    assert await world.types(run) == []


async def test_an_uncertain_call_is_resolved_once_also_after_the_end(world: World) -> None:
    run = await world.run(RunStatus.FAILED, scope=ADA)
    call = await world.call(run, InvocationStatus.UNCERTAIN, kind=IdempotencyClass.NON_IDEMPOTENT)
    event_id = uuid4()
    for applied in (True, False):
        done = await world.control.resolve(
            ADA, run.run_id, call, happened=True, note="seen in the bank", event_id=event_id
        )
        assert (done.status, done.applied) == (RunStatus.FAILED, applied)
    with pytest.raises(Conflict, match="resolved already"):
        await world.control.resolve(ADA, run.run_id, call, happened=False)
    (resolved,) = await world.events(run)
    assert resolved["type"] == "tool.call.resolved"
    assert (await world.calls(run))[call] is InvocationStatus.UNCERTAIN


async def test_only_an_uncertain_call_can_be_resolved(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, scope=ADA)
    call = await world.call(run, InvocationStatus.COMPLETED)
    with pytest.raises(Conflict, match="nothing to resolve"):
        await world.control.resolve(ADA, run.run_id, call, happened=True)


@pytest.mark.parametrize("state", [InvocationStatus.AWAITING_CHILD, InvocationStatus.RUNNING])
async def test_a_childs_result_is_delivered_once_in_any_open_state(world: World, state: InvocationStatus) -> None:
    run = await world.run(RunStatus.WAITING_CHILD, scope=ADA)
    call = await world.call(run, state)
    result = CallResult(status=InvocationStatus.COMPLETED, code="completed", data="done")
    first = await world.control.deliver(run, call, result)
    again = await world.control.deliver(run, call, result)
    assert (first.status, first.applied, again.applied) == (RunStatus.QUEUED, True, False)
    assert await world.types(run) == ["tool.call.completed", "run.requeued"]
    assert (await world.results(run))[call] == ["COMPLETED"]


async def test_a_call_of_another_run_is_unknown(world: World) -> None:
    run, other = [await world.run(RunStatus.WAITING_INPUT, scope=ADA) for _ in range(2)]
    call = await world.call(other, InvocationStatus.AWAITING_INPUT)
    with pytest.raises(NotFound):
        await world.control.answer(ADA, run.run_id, call, "yes")
    with pytest.raises(NotFound):
        await world.control.answer(ADA, run.run_id, uuid4(), "yes")

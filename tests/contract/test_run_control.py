"""Run control: what owners and other runs do, each edge judged under the locks and taken once."""

from dataclasses import replace

import pytest
from support.contract import Facts, World, call, checkpoint, later, outcomes, result

from wakeful.domain.edges import MAX_ANSWER_BYTES
from wakeful.domain.errors import AlreadyAnswered, Conflict, InvalidPayload, NotFound, RunEnded, WakefulError
from wakeful.domain.events.runs import RunCancelled, RunCancelRequested, RunRequeued, RunWaiting
from wakeful.domain.events.turns import CallApproved, CallCompleted, CallResolved, CallUncertain
from wakeful.domain.ids import child_run_id, child_session_id, new_id
from wakeful.domain.invocations import NewInvocation
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import IdempotencyClass, InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

APPROVAL, INPUT, CHILD = (
    InvocationStatus.AWAITING_APPROVAL,
    InvocationStatus.AWAITING_INPUT,
    InvocationStatus.AWAITING_CHILD,
)


def resumed_by(facts: Facts) -> RunRequeued:
    """The run.requeued at the end of the log."""
    payload = facts.events[-1].payload
    assert isinstance(payload, RunRequeued)
    return payload


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


# Approving and denying


async def test_an_approved_call_is_requested_again_and_its_run_goes_on(world: World) -> None:
    run, (waiting,) = await world.waiting(APPROVAL)
    answer = await world.store.control.approve(world.scope, run.run_id, waiting.id, note="go ahead")
    assert (answer.status, answer.applied) == (RunStatus.QUEUED, True)
    facts = await world.facts(run)
    (stored,) = facts.calls
    assert (stored.status, stored.approved_by) == (InvocationStatus.REQUESTED, str(world.scope.principal_id))
    assert facts.types[-2:] == ["tool.call.approved", "run.requeued"]
    approved = facts.events[-2].payload
    assert isinstance(approved, CallApproved)
    assert approved.note == "go ahead"
    assert resumed_by(facts).reason == "approval"


async def test_a_denial_is_the_one_result_of_its_call(world: World) -> None:
    run, (waiting,) = await world.waiting(APPROVAL)
    answer = await world.store.control.deny(world.scope, run.run_id, waiting.id, note="too much")
    assert answer.status is RunStatus.QUEUED
    facts = await world.facts(run)
    denied = facts.result_of(waiting.id)
    assert (denied.status, denied.message) == (InvocationStatus.DENIED, "too much")
    assert facts.status_of(waiting.id) is InvocationStatus.DENIED
    assert resumed_by(facts).reason == "approval"


@pytest.mark.parametrize("first", ["approve", "deny"])
@pytest.mark.parametrize("second", ["approve", "deny"])
async def test_a_call_is_approved_or_denied_once(world: World, first: str, second: str) -> None:
    run, (waiting,) = await world.waiting(APPROVAL)
    await getattr(world.store.control, first)(world.scope, run.run_id, waiting.id)
    before = await world.facts(run)
    with pytest.raises(Conflict):
        await getattr(world.store.control, second)(world.scope, run.run_id, waiting.id)
    assert await world.facts(run) == before


@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_the_same_decision_again_returns_the_first_success(world: World, action: str) -> None:
    run, (waiting,) = await world.waiting(APPROVAL)
    act, event_id = getattr(world.store.control, action), new_id()
    first = await act(world.scope, run.run_id, waiting.id, event_id=event_id)
    before = await world.facts(run)
    again = await act(world.scope, run.run_id, waiting.id, event_id=event_id)
    assert (first.applied, again.applied) == (True, False)
    assert await world.facts(run) == before


@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_only_a_call_that_awaits_approval_can_be_decided(world: World, action: str) -> None:
    run, (question,) = await world.waiting(INPUT)
    with pytest.raises(Conflict):
        await getattr(world.store.control, action)(world.scope, run.run_id, question.id)


@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_a_call_of_a_run_that_has_ended_cannot_be_decided(world: World, action: str) -> None:
    run, (waiting,) = await world.waiting(APPROVAL)
    await world.store.control.cancel(world.scope, run.run_id)
    with pytest.raises(RunEnded):
        await getattr(world.store.control, action)(world.scope, run.run_id, waiting.id)


# Resolving


async def uncertain(world: World) -> tuple[Lease, NewInvocation]:
    lease = await world.running()
    new = call(lease.run, idempotency=IdempotencyClass.NON_IDEMPOTENT)
    await world.turn(lease, new)
    await world.start_call(lease, new)
    await world.store.log.append(world.ending(lease, new, CallUncertain, result(InvocationStatus.UNCERTAIN)))
    return lease, new


@pytest.mark.parametrize("ended", [False, True])
async def test_an_uncertain_call_is_resolved_by_a_note_and_keeps_its_result(world: World, ended: bool) -> None:
    lease, new = await uncertain(world)
    if ended:
        await world.end(lease)
    before = await world.facts(lease.run)
    answer = await world.store.control.resolve(world.scope, lease.run.run_id, new.id, happened=True, note="seen")
    assert (answer.status, answer.applied) == (before.run.status, True)
    facts = await world.facts(lease.run)
    resolved = facts.events[-1].payload
    assert isinstance(resolved, CallResolved)
    assert (resolved.invocation_id, resolved.happened, resolved.note) == (new.id, True, "seen")
    assert facts.status_of(new.id) is InvocationStatus.UNCERTAIN
    assert facts.result_of(new.id) == before.result_of(new.id)
    assert facts.run.status is before.run.status


async def test_an_uncertain_call_is_resolved_once(world: World) -> None:
    lease, new = await uncertain(world)
    await world.store.control.resolve(world.scope, lease.run.run_id, new.id, happened=True)
    before = await world.facts(lease.run)
    with pytest.raises(Conflict):
        await world.store.control.resolve(world.scope, lease.run.run_id, new.id, happened=False)
    assert await world.facts(lease.run) == before


async def test_the_same_resolution_again_returns_the_first_success(world: World) -> None:
    lease, new = await uncertain(world)
    event_id = new_id()
    for applied in (True, False):
        answer = await world.store.control.resolve(
            world.scope, lease.run.run_id, new.id, happened=True, event_id=event_id
        )
        assert answer.applied is applied
    assert (await world.types(lease.run.session)).count("tool.call.resolved") == 1


@pytest.mark.parametrize("status", [InvocationStatus.REQUESTED, InvocationStatus.COMPLETED])
async def test_only_an_uncertain_call_can_be_resolved(world: World, status: InvocationStatus) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    if status is InvocationStatus.COMPLETED:
        await world.store.log.append(world.ending(lease, new, CallCompleted, result()))
    with pytest.raises(Conflict):
        await world.store.control.resolve(world.scope, lease.run.run_id, new.id, happened=True)


# Delivering


async def child_of(world: World, parent: RunRef, new: NewInvocation) -> RunRef:
    """A child in a session of its own, started by the call."""
    session = await world.session(session_id=child_session_id(new.id))
    submission = world.submission(
        session, "do it", run_id=child_run_id(new.id), parent=parent, parent_invocation_id=new.id
    )
    return (await world.store.queue.submit(submission)).run


async def test_a_childs_result_is_the_result_of_its_call_and_marks_the_child(world: World) -> None:
    lease = await world.running()
    new = call(lease.run, status=CHILD)
    new = replace(new, child_run_id=child_run_id(new.id), child_session_id=child_session_id(new.id))
    await world.turn(lease, new)
    await world.park(lease, RunStatus.WAITING_CHILD)
    child = await child_of(world, lease.run, new)
    await world.end(await world.claim())
    answer = await world.store.control.deliver(lease.run, new.id, result(data="done"))
    assert (answer.run, answer.status, answer.applied) == (lease.run, RunStatus.QUEUED, True)
    facts = await world.facts(lease.run)
    assert facts.result_of(new.id).data == "done"
    assert resumed_by(facts).reason == "child"
    assert (await world.facts(child)).run.result_delivered_at is not None
    assert await world.store.child_sweeps.undelivered(10) == []


async def test_delivering_again_changes_nothing(world: World) -> None:
    run, (new,) = await world.waiting(CHILD)
    await world.store.control.deliver(run, new.id, result(data="first"))
    before = await world.facts(run)
    again = await world.store.control.deliver(run, new.id, result(data="second"))
    assert not again.applied
    assert await world.facts(run) == before


async def test_delivering_to_a_parent_that_has_ended_changes_nothing(world: World) -> None:
    run, (new,) = await world.waiting(CHILD)
    await world.store.control.cancel(world.scope, run.run_id)
    before = await world.facts(run)
    assert not (await world.store.control.deliver(run, new.id, result())).applied
    assert await world.facts(run) == before


async def test_a_result_may_be_delivered_before_the_parent_waits_for_it(world: World) -> None:
    lease = await world.running()
    new = call(lease.run, status=CHILD)
    await world.turn(lease, new)
    answer = await world.store.control.deliver(lease.run, new.id, result())
    assert (answer.status, answer.applied) == (RunStatus.RUNNING, True)


async def test_delivering_to_a_parent_that_is_not_there_is_not_found(world: World) -> None:
    run, (new,) = await world.waiting(CHILD)
    with pytest.raises(NotFound):
        await world.store.control.deliver(replace(run, run_id=new_id()), new.id, result())
    with pytest.raises(NotFound):
        await world.store.control.deliver(replace(run, tenant_id=new_id()), new.id, result())


# Owners


@pytest.mark.spec("LOG-9")
@pytest.mark.parametrize("action", ["cancel", "answer", "approve", "deny", "resolve"])
@pytest.mark.parametrize("whose", ["principal", "tenant", "nobody"])
async def test_runs_of_other_owners_look_unknown_and_stay_untouched(world: World, action: str, whose: str) -> None:
    run, (question,) = await world.waiting(INPUT)
    before = await world.facts(run)
    scope = {
        "principal": Scope(world.scope.tenant_id, new_id()),
        "tenant": Scope(new_id(), world.scope.principal_id),
        "nobody": world.scope,
    }[whose]
    run_id = new_id() if whose == "nobody" else run.run_id
    control = world.store.control
    with pytest.raises(NotFound) as refused:
        if action == "cancel":
            await control.cancel(scope, run_id)
        elif action == "answer":
            await control.answer(scope, run_id, question.id, "yes")
        elif action == "resolve":
            await control.resolve(scope, run_id, question.id, happened=True)
        else:
            await getattr(control, action)(scope, run_id, question.id)
    assert str(refused.value) == str(NotFound("run", run_id))
    assert await world.facts(run) == before


@pytest.mark.parametrize("action", ["answer", "approve", "deny", "resolve", "deliver"])
async def test_a_call_of_another_run_is_unknown(world: World, action: str) -> None:
    run, _ = await world.waiting(INPUT)
    _, (foreign,) = await world.waiting(INPUT)
    control = world.store.control
    with pytest.raises(NotFound):
        if action == "answer":
            await control.answer(world.scope, run.run_id, foreign.id, "yes")
        elif action == "resolve":
            await control.resolve(world.scope, run.run_id, foreign.id, happened=True)
        elif action == "deliver":
            await control.deliver(run, foreign.id, result())
        else:
            await getattr(control, action)(world.scope, run.run_id, foreign.id)


async def test_an_answer_and_the_release_that_waits_for_it_never_miss_each_other(world: World) -> None:
    """Whichever comes first, the run ends up going on: QUEUED, or RUNNING with the answer seen."""
    for _ in range(4):
        lease = await world.running()
        question = call(lease.run, status=INPUT)
        await world.turn(lease, question)
        await world.store.checkpoints.write(lease, checkpoint())
        _, raised = await outcomes(
            world.park(lease, RunStatus.WAITING_INPUT),
            world.store.control.answer(world.scope, lease.run.run_id, question.id, "yes"),
        )
        assert all(isinstance(error, WakefulError) for error in raised)
        status = (await world.facts(lease.run)).run.status
        assert status is (RunStatus.RUNNING if raised else RunStatus.QUEUED)

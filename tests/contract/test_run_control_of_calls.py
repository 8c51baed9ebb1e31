"""Run control: approvals, denials, resolutions and child results, each taken once; and whose runs they are."""

from dataclasses import replace

import pytest
from support.contract import World, call, checkpoint, outcomes, result, resumed_by

from wakeful.domain.errors import Conflict, NotFound, RunEnded, WakefulError
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
    assert [stored.resolved_at for stored in before.calls] == [None]
    assert [stored.resolved_at for stored in facts.calls] == [facts.events[-1].created_at]
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
        await world.saved(lease, checkpoint())
        _, raised = await outcomes(
            world.park(lease, RunStatus.WAITING_INPUT),
            world.store.control.answer(world.scope, lease.run.run_id, question.id, "yes"),
        )
        assert all(isinstance(error, WakefulError) for error in raised)
        status = (await world.facts(lease.run)).run.status
        assert status is (RunStatus.RUNNING if raised else RunStatus.QUEUED)

"""Child sweeps: an ended child's result reaches its parent once, and a child nobody waits for is cancelled."""

from dataclasses import dataclass, replace

import pytest
from support.contract import World, call, outcomes, turn_of

from wakeful.domain.appends import RunChange
from wakeful.domain.ids import child_run_id, child_session_id, new_id
from wakeful.domain.invocations import NewInvocation
from wakeful.domain.ports.sweeps import UndeliveredChild
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]


@dataclass
class Family:
    """A parent that waits for its child."""

    parent: RunRef
    call: NewInvocation
    child: RunRef

    @property
    def undelivered(self) -> UndeliveredChild:
        return UndeliveredChild(self.child, self.parent, self.call.id)


async def family(world: World, *, parked: bool = True) -> tuple[Family, Lease]:
    lease = await world.running()
    new = call(lease.run, status=InvocationStatus.AWAITING_CHILD)
    new = replace(new, child_run_id=child_run_id(new.id), child_session_id=child_session_id(new.id))
    await world.turn(lease, new)
    session = await world.session(session_id=child_session_id(new.id))
    submission = world.submission(
        session, "do it", run_id=child_run_id(new.id), parent=lease.run, parent_invocation_id=new.id
    )
    child = (await world.store.queue.submit(submission)).run
    if parked:
        await world.park(lease, RunStatus.WAITING_CHILD)
    return Family(lease.run, new, child), lease


async def test_an_ended_child_is_undelivered_until_its_parent_has_the_result(world: World) -> None:
    one, _ = await family(world)
    sweeps = world.store.child_sweeps
    assert await sweeps.undelivered(10) == []
    await world.end(await world.claim())
    assert await sweeps.undelivered(10) == [one.undelivered]
    assert await sweeps.deliver_child(one.undelivered)
    assert await sweeps.undelivered(10) == []


async def test_runs_without_a_parent_have_nothing_to_deliver(world: World) -> None:
    await world.end(await world.running())
    assert await world.store.child_sweeps.undelivered(10) == []


async def test_undelivered_children_are_found_up_to_the_limit(world: World) -> None:
    for _ in range(3):
        await family(world)
        await world.end(await world.claim())
    assert len(await world.store.child_sweeps.undelivered(2)) == 2


async def test_the_last_message_of_a_child_is_the_result_of_its_parents_call(world: World) -> None:
    one, _ = await family(world)
    lease = await world.claim()
    await world.append(lease, turn_of(1, "thinking"), run=RunChange(step=1))
    await world.append(lease, turn_of(2, "forty-two"), run=RunChange(step=2))
    await world.end(lease)
    await world.store.child_sweeps.deliver_child(one.undelivered)
    facts = await world.facts(one.parent)
    outcome = facts.result_of(one.call.id)
    assert (outcome.status, outcome.data) == (InvocationStatus.COMPLETED, "forty-two")
    assert facts.status_of(one.call.id) is InvocationStatus.COMPLETED
    assert (facts.run.status, facts.types[-1]) == (RunStatus.QUEUED, "run.requeued")
    assert (await world.facts(one.child)).run.result_delivered_at is not None


async def test_a_child_that_ended_in_silence_delivers_nothing_said(world: World) -> None:
    one, _ = await family(world)
    await world.end(await world.claim())
    await world.store.child_sweeps.deliver_child(one.undelivered)
    outcome = (await world.facts(one.parent)).result_of(one.call.id)
    assert (outcome.status, outcome.data) == (InvocationStatus.COMPLETED, None)


async def test_a_failed_child_is_a_failed_call(world: World) -> None:
    one, _ = await family(world)
    await world.end(await world.claim(), RunStatus.FAILED)
    await world.store.child_sweeps.deliver_child(one.undelivered)
    outcome = (await world.facts(one.parent)).result_of(one.call.id)
    assert (outcome.status, outcome.code, outcome.message) == (InvocationStatus.FAILED, "broken", "it broke")


async def test_a_cancelled_child_is_a_cancelled_call(world: World) -> None:
    one, _ = await family(world)
    await world.store.control.cancel(world.scope, one.child.run_id)
    await world.store.child_sweeps.deliver_child(one.undelivered)
    assert (await world.facts(one.parent)).result_of(one.call.id).status is InvocationStatus.CANCELLED


async def test_a_result_is_delivered_once_however_many_sweepers_try(world: World) -> None:
    one, _ = await family(world)
    await world.end(await world.claim())
    _, raised = await outcomes(*(world.store.child_sweeps.deliver_child(one.undelivered) for _ in range(4)))
    assert raised == []
    facts = await world.facts(one.parent)
    assert facts.result_of(one.call.id).status is InvocationStatus.COMPLETED
    assert facts.types.count("run.requeued") == 1
    assert not await world.store.child_sweeps.deliver_child(one.undelivered)


async def test_a_live_child_has_no_result_yet(world: World) -> None:
    one, _ = await family(world)
    assert not await world.store.child_sweeps.deliver_child(one.undelivered)
    assert (await world.facts(one.parent)).run.status is RunStatus.WAITING_CHILD


async def test_a_result_is_delivered_before_the_parent_waits_for_it(world: World) -> None:
    one, lease = await family(world, parked=False)
    await world.end(await world.claim())
    assert await world.store.child_sweeps.deliver_child(one.undelivered)
    facts = await world.facts(one.parent)
    assert (facts.run.status, facts.run.lease_owner) == (RunStatus.RUNNING, lease.owner)
    assert facts.result_of(one.call.id).status is InvocationStatus.COMPLETED


async def test_a_parent_that_has_ended_counts_as_told(world: World) -> None:
    one, _ = await family(world)
    await world.end(await world.claim())
    await world.store.control.cancel(world.scope, one.parent.run_id)
    before = await world.facts(one.parent)
    await world.store.child_sweeps.deliver_child(one.undelivered)
    assert await world.facts(one.parent) == before
    assert await world.store.child_sweeps.undelivered(10) == []


async def test_a_parent_that_is_gone_counts_as_told(world: World) -> None:
    gone = RunRef(world.scope.tenant_id, new_id(), new_id())
    await world.queued(parent=gone, parent_invocation_id=new_id())
    await world.end(await world.claim())
    (found,) = await world.store.child_sweeps.undelivered(10)
    await world.store.child_sweeps.deliver_child(found)
    assert await world.store.child_sweeps.undelivered(10) == []


async def test_a_child_whose_parent_still_waits_is_no_orphan(world: World) -> None:
    one, _ = await family(world)
    assert await world.store.child_sweeps.orphans(10) == []
    assert not await world.store.child_sweeps.cancel_orphan(one.child)
    assert (await world.facts(one.child)).run.status is RunStatus.QUEUED


async def test_a_child_whose_parent_has_ended_is_cancelled(world: World) -> None:
    one, _ = await family(world)
    await world.store.control.cancel(world.scope, one.parent.run_id)
    assert await world.store.child_sweeps.orphans(10) == [one.child]
    assert await world.store.child_sweeps.cancel_orphan(one.child)
    facts = await world.facts(one.child)
    assert (facts.run.status, facts.types[-1]) == (RunStatus.CANCELLED, "run.cancelled")
    assert facts.events[-1].actor.type == "maintenance"
    assert await world.store.child_sweeps.orphans(10) == []


async def test_a_child_whose_running_parent_was_asked_to_cancel_is_cancelled(world: World) -> None:
    one, _ = await family(world, parked=False)
    await world.store.control.cancel(world.scope, one.parent.run_id)
    assert await world.store.child_sweeps.orphans(10) == [one.child]
    assert await world.store.child_sweeps.cancel_orphan(one.child)


async def test_a_child_whose_parent_is_gone_is_an_orphan(world: World) -> None:
    gone = RunRef(world.scope.tenant_id, new_id(), new_id())
    child = await world.queued(parent=gone, parent_invocation_id=new_id())
    assert await world.store.child_sweeps.orphans(10) == [child]
    assert await world.store.child_sweeps.cancel_orphan(child)


async def test_a_running_orphan_is_asked_to_end_once(world: World) -> None:
    one, _ = await family(world)
    lease = await world.claim()
    assert lease.run == one.child
    await world.store.control.cancel(world.scope, one.parent.run_id)
    assert await world.store.child_sweeps.orphans(10) == [one.child]
    assert await world.store.child_sweeps.cancel_orphan(one.child)
    facts = await world.facts(one.child)
    assert (facts.run.status, facts.types[-1]) == (RunStatus.RUNNING, "run.cancel_requested")
    assert await world.store.child_sweeps.orphans(10) == []
    assert not await world.store.child_sweeps.cancel_orphan(one.child)


async def test_an_ended_child_is_no_orphan(world: World) -> None:
    one, _ = await family(world)
    await world.end(await world.claim())
    await world.store.control.cancel(world.scope, one.parent.run_id)
    assert await world.store.child_sweeps.orphans(10) == []
    assert not await world.store.child_sweeps.cancel_orphan(one.child)


async def test_orphans_are_found_up_to_the_limit(world: World) -> None:
    for _ in range(3):
        one, _ = await family(world)
        await world.store.control.cancel(world.scope, one.parent.run_id)
    assert len(await world.store.child_sweeps.orphans(2)) == 2

"""Delivery of a child's result, and children that nobody waits for any more: sweeps that need no hint."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from support.acting import World

from wakeful.domain.content import CallResult, ProposedCall
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.turns import AssistantMessageCreated
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = pytest.mark.anyio

ADA = Scope(uuid4(), uuid4())


async def parent_of(
    world: World, status: RunStatus = RunStatus.WAITING_CHILD, **columns: Any
) -> tuple[RunRef, UUID, UUID]:
    """A parent that waits for a child to be made: the run, the call, and the child's id."""
    child_id = uuid4()
    parent = await world.run(status, scope=ADA, **columns)
    call = await world.call(parent, InvocationStatus.AWAITING_CHILD, child_run_id=child_id, child_session_id=uuid4())
    return parent, call, child_id


async def child_of(world: World, parent: RunRef, call: UUID, status: RunStatus, **columns: Any) -> RunRef:
    child = await world.run(
        status,
        scope=ADA,
        parent_run_id=parent.run_id,
        parent_session_id=parent.session_id,
        parent_invocation_id=call,
        **columns,
    )
    await world.admin.execute(
        "UPDATE wakeful.tool_invocations SET child_run_id = %s, child_session_id = %s WHERE id = %s",
        [child.run_id, child.session_id, call],
    )
    return child


async def says(world: World, run: RunRef, text: str, *calls: ProposedCall) -> None:
    async with world.units.begin(run.tenant_id) as unit:
        await unit.sessions.lock(run.session_id)
        message = AssistantMessageCreated(step=1, content=text, calls=list(calls))
        await unit.log.append(run.session_id, [NewEvent(message, Actor("model"), run.run_id)])


async def delivered(world: World, child: RunRef) -> bool:
    return (await world.row(child))["result_delivered_at"] is not None


async def deliver_all(world: World) -> list[bool]:
    return [await world.child_sweeps.deliver_child(found) for found in await world.child_sweeps.undelivered(10)]


async def test_a_parent_is_told_its_childs_final_reply_and_goes_on(world: World) -> None:
    parent, call, _ = await parent_of(world)
    child = await child_of(world, parent, call, RunStatus.COMPLETED)
    await says(world, child, "let me look", ProposedCall(position=0, tool="look", arguments="{}"))
    await says(world, child, "it is blue")
    assert await deliver_all(world) == [True]
    result, requeued = await world.events(parent)
    assert (result["type"], result["payload"]["result"]["data"]) == ("tool.call.completed", "it is blue")
    assert requeued["payload"]["reason"] == "child"
    assert await world.status(parent) is RunStatus.QUEUED
    assert await delivered(world, child)
    assert await deliver_all(world) == []


async def test_a_child_that_says_nothing_delivers_nothing_as_its_reply(world: World) -> None:
    parent, call, _ = await parent_of(world)
    child = await child_of(world, parent, call, RunStatus.COMPLETED)
    await says(world, child, "let me look", ProposedCall(position=0, tool="look", arguments="{}"))
    await deliver_all(world)
    assert (await world.events(parent))[0]["payload"]["result"]["data"] is None


@pytest.mark.parametrize(
    ("status", "columns", "result", "code"),
    [
        (RunStatus.FAILED, {"failure": {"code": "budget_exceeded", "message": "m"}}, "FAILED", "budget_exceeded"),
        (RunStatus.CANCELLED, {}, "CANCELLED", "cancelled"),
    ],
)
async def test_a_parent_is_told_how_its_child_failed(
    world: World, status: RunStatus, columns: dict[str, Any], result: str, code: str
) -> None:
    parent, call, _ = await parent_of(world)
    await child_of(world, parent, call, status, **columns)
    await deliver_all(world)
    told = (await world.events(parent))[0]["payload"]["result"]
    assert (told["status"], told["code"]) == (result, code)


async def test_a_crash_between_telling_the_parent_and_marking_the_child_changes_nothing(world: World) -> None:
    parent, call, _ = await parent_of(world)
    child = await child_of(world, parent, call, RunStatus.COMPLETED)
    await deliver_all(world)
    told = await world.events(parent)
    await world.admin.execute("UPDATE wakeful.runs SET result_delivered_at = NULL WHERE id = %s", [child.run_id])
    assert await deliver_all(world) == [True]
    assert await world.events(parent) == told
    assert await delivered(world, child)


async def test_a_terminal_or_deleted_parent_counts_as_told(world: World) -> None:
    ended, ended_call, _ = await parent_of(world, RunStatus.CANCELLED)
    gone, gone_call, _ = await parent_of(world)
    children = [
        await child_of(world, ended, ended_call, RunStatus.COMPLETED),
        await child_of(world, gone, gone_call, RunStatus.COMPLETED),
    ]
    await world.admin.execute("DELETE FROM wakeful.sessions WHERE id = %s", [gone.session_id])
    assert await deliver_all(world) == [True, True]
    assert [await delivered(world, child) for child in children] == [True, True]
    assert await world.events(ended) == []


async def test_delivering_through_the_port_marks_the_child(world: World) -> None:
    parent, call, _ = await parent_of(world)
    child = await child_of(world, parent, call, RunStatus.COMPLETED)
    await world.control.deliver(parent, call, CallResult(status=InvocationStatus.COMPLETED, code="completed"))
    assert await delivered(world, child)


async def test_a_child_that_has_not_ended_is_not_delivered(world: World) -> None:
    parent, call, _ = await parent_of(world)
    child = await child_of(world, parent, call, RunStatus.RUNNING)
    assert await world.child_sweeps.undelivered(10) == []
    assert await world.status(parent) is RunStatus.WAITING_CHILD
    assert not await delivered(world, child)


@pytest.mark.parametrize("why", ["ended", "gone", "asked to end"])
async def test_a_queued_child_that_nobody_waits_for_is_cancelled(world: World, why: str) -> None:
    status = RunStatus.CANCELLED if why == "ended" else RunStatus.RUNNING
    columns = {"cancel_requested_at": await world.clock()} if why == "asked to end" else {}
    parent, call, _ = await parent_of(world, status, **columns)
    child = await child_of(world, parent, call, RunStatus.QUEUED)
    if why == "gone":
        await world.admin.execute("DELETE FROM wakeful.sessions WHERE id = %s", [parent.session_id])
    assert await world.child_sweeps.orphans(10) == [child]
    assert await world.child_sweeps.cancel_orphan(child)
    assert await world.status(child) is RunStatus.CANCELLED
    assert await world.child_sweeps.orphans(10) == []


async def test_a_running_orphan_is_asked_once(world: World) -> None:
    parent, call, _ = await parent_of(world, RunStatus.FAILED)
    child = await child_of(world, parent, call, RunStatus.RUNNING)
    assert await world.child_sweeps.orphans(10) == [child]
    assert await world.child_sweeps.cancel_orphan(child)
    assert await world.child_sweeps.orphans(10) == []
    assert not await world.child_sweeps.cancel_orphan(child)
    assert await world.types(child) == ["run.cancel_requested"]


async def test_a_child_whose_parent_lives_is_left_alone(world: World) -> None:
    parent, call, _ = await parent_of(world)
    child = await child_of(world, parent, call, RunStatus.QUEUED)
    assert await world.child_sweeps.orphans(10) == []
    assert not await world.child_sweeps.cancel_orphan(child)
    assert not await world.child_sweeps.cancel_orphan(parent)

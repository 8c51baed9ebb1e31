"""Two real connections meet on one run: whoever waits for a lock judges what it finds afterwards, not before."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from support.acting import Connection, World

from wakeful.domain.errors import AlreadyAnswered, Conflict
from wakeful.domain.ports.run_control import Controlled
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.persistence.acting import lock

pytestmark = pytest.mark.anyio

ADA = Scope(uuid4(), uuid4())


@asynccontextmanager
async def holder(world: World, run: RunRef) -> AsyncIterator[Connection]:
    """A holder's append in flight: it has the session's row and commits at the end."""
    async with world.other() as connection:
        await connection.execute(
            "UPDATE wakeful.sessions SET next_event_sequence = next_event_sequence + 1 WHERE id = %s", [run.session_id]
        )
        yield connection


async def set_status(connection: Connection, run: RunRef, status: RunStatus) -> None:
    await connection.execute(
        "UPDATE wakeful.runs SET status = %s, lease_owner = NULL, lease_expires_at = NULL WHERE id = %s",
        [status.value, run.run_id],
    )


async def test_an_answer_that_waits_while_the_run_goes_to_wait_queues_it(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    async with holder(world, run) as connection:
        await set_status(connection, run, RunStatus.WAITING_INPUT)
        answering = asyncio.create_task(world.control.answer(ADA, run.run_id, call, "yes"))
        await world.until_blocked()
    assert (await answering).status is RunStatus.QUEUED
    assert await world.types(run) == ["tool.call.completed", "run.requeued"]


async def test_a_cancel_that_meets_a_claim_asks_the_new_holder(world: World) -> None:
    run = await world.run(RunStatus.QUEUED, scope=ADA)
    async with world.other() as claimer:
        await claimer.execute(
            "UPDATE wakeful.runs SET status = 'RUNNING', lease_owner = %s, lease_epoch = 1,"
            " lease_expires_at = clock_timestamp() + interval '30 s' WHERE id = %s",
            [uuid4(), run.run_id],
        )
        cancelling = asyncio.create_task(world.control.cancel(ADA, run.run_id))
        await world.until_blocked()
    done = await cancelling
    assert (done.status, done.applied) == (RunStatus.RUNNING, True)
    assert await world.types(run) == ["run.cancel_requested"]


async def test_a_claim_passes_over_a_run_that_is_being_cancelled(world: World) -> None:
    run = await world.run(RunStatus.QUEUED, scope=ADA)
    async with world.units.begin(run.tenant_id) as unit:
        await lock(unit, run)
        taken = await world.admin.execute(
            "SELECT id FROM wakeful.runs WHERE status = 'QUEUED' FOR NO KEY UPDATE SKIP LOCKED"
        )
        assert await taken.fetchall() == []


async def test_a_cancel_that_meets_the_completion_changes_nothing(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, scope=ADA)
    async with holder(world, run) as connection:
        await set_status(connection, run, RunStatus.COMPLETED)
        cancelling = asyncio.create_task(world.control.cancel(ADA, run.run_id))
        await world.until_blocked()
    done = await cancelling
    assert (done.status, done.applied) == (RunStatus.COMPLETED, False)
    assert await world.types(run) == []


async def at_once(world: World, run: RunRef, *actions: Coroutine[Any, Any, Any]) -> list[Any]:
    """All of them wait for the session's lock, which is then released."""
    async with holder(world, run):
        tasks = [asyncio.create_task(action) for action in actions]
        await world.until_blocked(len(tasks))
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_of_two_answers_at_once_one_is_the_result_and_one_a_conflict(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    ended = await at_once(
        world, run, *(world.control.answer(ADA, run.run_id, call, text, event_id=uuid4()) for text in ("yes", "no"))
    )
    assert sorted(type(result).__name__ for result in ended) == [AlreadyAnswered.__name__, Controlled.__name__]
    assert (await world.results(run))[call] == ["COMPLETED"]


async def test_one_answer_sent_twice_at_once_succeeds_twice_and_is_kept_once(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT)
    event_id = uuid4()
    ended = await at_once(
        world, run, *(world.control.answer(ADA, run.run_id, call, "yes", event_id=event_id) for _ in range(2))
    )
    assert sorted(result.applied for result in ended if isinstance(result, Controlled)) == [False, True]
    assert await world.types(run) == ["tool.call.completed", "run.requeued"]


async def test_of_two_approvals_at_once_one_is_a_conflict(world: World) -> None:
    run = await world.run(RunStatus.WAITING_APPROVAL, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_APPROVAL)
    ended = await at_once(world, run, *(world.control.approve(ADA, run.run_id, call) for _ in range(2)))
    assert [isinstance(result, Conflict) for result in ended].count(True) == 1
    assert await world.types(run) == ["tool.call.approved", "run.requeued"]


async def test_an_approval_and_a_denial_at_once_are_one_decision(world: World) -> None:
    run = await world.run(RunStatus.WAITING_APPROVAL, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_APPROVAL)
    ended = await at_once(
        world, run, world.control.approve(ADA, run.run_id, call), world.control.deny(ADA, run.run_id, call)
    )
    assert [isinstance(result, Conflict) for result in ended].count(True) == 1
    assert len(await world.types(run)) == 2


async def test_a_sweep_that_waits_for_the_heartbeats_renewal_leaves_the_lease_alone(world: World) -> None:
    run, expired = await world.expired()
    async with world.other() as heartbeat:
        await heartbeat.execute(
            "UPDATE wakeful.runs SET lease_expires_at = clock_timestamp() + interval '30 s' WHERE id = %s", [run.run_id]
        )
        reclaiming = asyncio.create_task(world.sweeps.reclaim(expired))
        await world.until_blocked()
    assert await reclaiming is None
    row = await world.row(run)
    assert (row["status"], row["lease_expirations"]) == ("RUNNING", 0)


async def test_a_sweep_that_waits_for_the_last_append_does_not_reopen_the_run(world: World) -> None:
    run, expired = await world.expired()
    async with holder(world, run) as connection:
        await set_status(connection, run, RunStatus.COMPLETED)
        reclaiming = asyncio.create_task(world.sweeps.reclaim(expired))
        await world.until_blocked()
    assert await reclaiming is None
    assert await world.status(run) is RunStatus.COMPLETED


async def test_a_sweep_does_not_take_the_lease_of_the_next_holder(world: World) -> None:
    run, expired = await world.expired()
    await world.admin.execute("UPDATE wakeful.runs SET lease_epoch = 2 WHERE id = %s", [run.run_id])
    assert await world.sweeps.reclaim(expired) is None
    assert await world.status(run) is RunStatus.RUNNING


@pytest.mark.spec("QUE-6")
async def test_two_sweeps_of_one_lease_count_one_crash(world: World) -> None:
    run, expired = await world.expired()
    async with holder(world, run):
        sweeping = [asyncio.create_task(world.sweeps.reclaim(expired)) for _ in range(2)]
        await world.until_blocked(2)
    assert sorted(map(str, await asyncio.gather(*sweeping))) == ["None", "QUEUED"]
    assert (await world.row(run))["lease_expirations"] == 1


async def test_an_answer_and_its_expiry_at_once_give_one_result(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA)
    call = await world.call(run, InvocationStatus.AWAITING_INPUT, expires_at=await world.clock("-1 second"))
    (wait,) = await world.sweeps.expired_waits(10)
    ended = await at_once(
        world, run, world.control.answer(ADA, run.run_id, call, "late"), world.sweeps.expire_wait(wait)
    )
    assert len((await world.results(run))[call]) == 1
    assert await world.types(run) in (
        ["tool.call.completed", "run.requeued"],
        ["tool.call.failed", "run.requeued"],
    )
    assert not any(isinstance(result, BaseException) and not isinstance(result, Conflict) for result in ended)

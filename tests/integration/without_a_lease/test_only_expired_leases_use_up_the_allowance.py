"""The crash allowance (QUE-6, ADR-0118), deadlines and expired waits, as sweeps apply them."""

from datetime import timedelta
from uuid import uuid4

import pytest
from support.acting import World

from wakeful.domain.scopes import Scope
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("QUE-6")]

ADA = Scope(uuid4(), uuid4())


async def claim_again(world: World, run_id: object) -> None:
    await world.admin.execute(
        "UPDATE wakeful.runs SET status = 'RUNNING', lease_owner = %s, lease_epoch = lease_epoch + 1,"
        " attempts = attempts + 1, lease_expires_at = clock_timestamp() - interval '1 ms' WHERE id = %s",
        [uuid4(), run_id],
    )


async def test_two_expirations_requeue_after_one_and_two_seconds_and_the_third_fails(world: World) -> None:
    run, _ = await world.expired()
    statuses, delays = [], []
    for round_ in range(3):
        if round_:
            await claim_again(world, run.run_id)
        (expired,) = await world.sweeps.expired_leases(10)
        statuses.append(await world.sweeps.reclaim(expired))
        row = await world.row(run)
        delays.append(row["scheduled_for"] - row["updated_at"])
    assert statuses == [RunStatus.QUEUED, RunStatus.QUEUED, RunStatus.FAILED]
    assert delays[:2] == [timedelta(seconds=1), timedelta(seconds=2)]
    row = await world.row(run)
    assert row["lease_expirations"] == 3
    assert row["failure"]["code"] == "max_attempts_exceeded"
    assert [attempt["epoch"] for attempt in row["failure"]["attempts"]] == [1, 2, 3]
    assert row["failure"]["attempts"] == row["attempt_failures"]
    assert await world.types(run) == ["run.requeued", "run.requeued", "run.failed"]


async def test_a_requeued_run_is_suspect_and_says_why_in_the_log(world: World) -> None:
    run, expired = await world.expired()
    await world.sweeps.reclaim(expired, cause="worker_died")
    row = await world.row(run)
    assert (row["suspect"], row["lease_owner"], row["lease_expires_at"]) == (True, None, None)
    assert [(a["epoch"], a["reason"]) for a in row["attempt_failures"]] == [(1, "worker_died")]
    (event,) = await world.events(run)
    assert event["actor_type"] == "maintenance"
    assert event["payload"] == {
        "reason": "lease_expired",
        "epoch": 1,
        "lease_expirations": 1,
        "delay_seconds": 1.0,
    }


async def test_claims_alone_never_use_up_the_allowance(world: World) -> None:
    run, expired = await world.expired(attempts=400)
    assert await world.sweeps.reclaim(expired) is RunStatus.QUEUED
    assert await world.sweeps.hopeless(10) == []
    assert (await world.row(run))["lease_expirations"] == 1


@pytest.mark.parametrize("reason", ["input", "approval", "timeout"])
async def test_a_resumption_neither_uses_nor_resets_the_allowance(world: World, reason: str) -> None:
    asked = {"approval": InvocationStatus.AWAITING_APPROVAL}.get(reason, InvocationStatus.AWAITING_INPUT)
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA, lease_expirations=2, suspect=False)
    call = await world.call(run, asked, expires_at=await world.clock("-1 second"))
    match reason:
        case "input":
            await world.control.answer(ADA, run.run_id, call, "yes")
        case "approval":
            await world.control.approve(ADA, run.run_id, call)
        case _:
            (wait,) = await world.sweeps.expired_waits(10)
            assert await world.sweeps.expire_wait(wait)
    row = await world.row(run)
    assert (row["status"], row["lease_expirations"], row["suspect"]) == ("QUEUED", 2, False)
    assert (await world.events(run))[-1]["payload"]["reason"] == reason


async def test_an_exhausted_queued_run_is_failed_with_its_event(world: World) -> None:
    run = await world.run(RunStatus.QUEUED, lease_expirations=3)
    assert await world.sweeps.hopeless(10) == [run]
    assert await world.sweeps.fail_hopeless(run)
    assert not await world.sweeps.fail_hopeless(run)
    assert await world.types(run) == ["run.failed"]
    assert (await world.row(run))["failure"]["code"] == "max_attempts_exceeded"


async def test_a_waiting_run_is_not_failed_for_its_crashes(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, lease_expirations=3)
    assert await world.sweeps.hopeless(10) == []
    assert not await world.sweeps.fail_hopeless(run)
    assert await world.status(run) is RunStatus.WAITING_INPUT


async def test_an_expired_lease_whose_end_was_asked_for_is_cancelled(world: World) -> None:
    run, expired = await world.expired(cancel_requested_at=await world.clock())
    assert await world.sweeps.reclaim(expired) is RunStatus.CANCELLED
    assert await world.types(run) == ["run.cancelled"]


async def test_a_lease_that_has_not_expired_is_left_alone(world: World) -> None:
    run, expired = await world.expired(lease_expires_at="20 seconds")
    assert await world.sweeps.expired_leases(10) == []
    assert await world.sweeps.reclaim(expired) is None
    later = await world.clock("30 seconds")
    assert await world.sweeps.expired_leases(10, now=later) == [expired]
    assert await world.sweeps.reclaim(expired, now=later) is RunStatus.QUEUED
    assert await world.types(run) == ["run.requeued"]


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.WAITING_INPUT, RunStatus.WAITING_CHILD])
async def test_an_unheld_run_past_its_deadline_is_failed(world: World, status: RunStatus) -> None:
    run = await world.run(status, deadline_at=await world.clock("10 seconds"))
    assert await world.sweeps.hopeless(10) == []
    later = await world.clock("20 seconds")
    assert await world.sweeps.hopeless(10, now=later) == [run]
    assert not await world.sweeps.fail_hopeless(run)
    assert await world.sweeps.fail_hopeless(run, now=later)
    assert (await world.row(run))["failure"]["code"] == "deadline_exceeded"


async def test_a_holder_watches_its_own_deadline(world: World) -> None:
    run = await world.run(RunStatus.RUNNING, deadline_at=await world.clock("-1 second"))
    assert await world.sweeps.hopeless(10) == []
    assert not await world.sweeps.fail_hopeless(run)


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (InvocationStatus.AWAITING_INPUT, InvocationStatus.FAILED),
        (InvocationStatus.AWAITING_APPROVAL, InvocationStatus.DENIED),
    ],
)
async def test_what_nobody_answers_in_time_ends_with_timed_out(
    world: World, asked: InvocationStatus, result: InvocationStatus
) -> None:
    run = await world.run(RunStatus.WAITING_INPUT)
    call = await world.call(run, asked, expires_at=await world.clock("10 seconds"))
    assert await world.sweeps.expired_waits(10) == []
    later = await world.clock("20 seconds")
    (wait,) = await world.sweeps.expired_waits(10, now=later)
    assert (wait.run, wait.call) == (run, call)
    assert not await world.sweeps.expire_wait(wait)
    assert await world.sweeps.expire_wait(wait, now=later)
    ended, requeued = await world.events(run)
    assert (ended["payload"]["result"]["status"], ended["payload"]["result"]["code"]) == (result.value, "timed_out")
    assert requeued["payload"]["reason"] == "timeout"
    assert await world.status(run) is RunStatus.QUEUED


async def test_a_wait_for_a_child_never_expires(world: World) -> None:
    run = await world.run(RunStatus.WAITING_CHILD)
    await world.call(run, InvocationStatus.AWAITING_CHILD, expires_at=await world.clock("-1 second"))
    assert await world.sweeps.expired_waits(10) == []

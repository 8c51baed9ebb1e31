"""Run sweeps: what a crash, a used-up allowance, a deadline or a silence does, once and judged anew."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from support.contract import TERM, Facts, World, call, later, outcomes

from wakeful.domain.content import Failure
from wakeful.domain.errors import Fenced
from wakeful.domain.events.runs import RunFailed, RunRequeued
from wakeful.domain.ids import new_id
from wakeful.domain.ports.presence import mark_of
from wakeful.domain.ports.sweeps import HOLDER_DEAD, ExpiredLease, ExpiredWait
from wakeful.domain.runs import Lease
from wakeful.domain.states import IdempotencyClass, InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

MINUTE = timedelta(minutes=1)


def expired(lease: Lease) -> ExpiredLease:
    return ExpiredLease(lease.run, lease.owner, lease.epoch)


async def failure_of(world: World, facts: Facts) -> Failure:
    failed = facts.events[-1].payload
    assert isinstance(failed, RunFailed)
    assert facts.run.failure == failed.failure
    return failed.failure


# Expired leases


async def test_a_lease_is_found_when_its_term_has_passed_and_not_before(world: World) -> None:
    lease = await world.running()
    find = world.store.run_sweeps.expired_leases
    assert await find(10) == []
    assert await find(10, now=later(20)) == []
    assert await find(10, now=later(40)) == [expired(lease)]


async def test_expired_leases_are_found_oldest_first_up_to_the_limit(world: World) -> None:
    terms = (30, 10, 20)
    leases = []
    for minutes in terms:
        await world.queued()
        leases.append(await world.claim(lease=minutes * MINUTE))
    found = await world.store.run_sweeps.expired_leases(2, now=later(7200))
    assert found == [expired(leases[1]), expired(leases[2])]


async def test_only_running_runs_have_leases_that_expire(world: World) -> None:
    await world.queued(scheduled_for=later(10_000))
    await world.waiting(InvocationStatus.AWAITING_INPUT)
    await world.end(await world.running())
    assert await world.store.run_sweeps.expired_leases(10, now=later(20_000)) == []


async def test_the_leases_of_an_owner_are_found_by_its_mark(world: World) -> None:
    mine = [await world.running(), await world.running()]
    await world.waiting(InvocationStatus.AWAITING_INPUT)
    await world.queued()
    other = await world.claim(owner=(stranger := new_id()))
    find = world.store.run_sweeps.held_by
    found = await find([mark_of(world.owner)])
    assert {(held.run, held.owner, held.epoch) for held in found} == {(m.run, m.owner, m.epoch) for m in mine}
    assert [held.run for held in await find([mark_of(stranger)])] == [other.run]
    assert len(await find([mark_of(stranger), mark_of(world.owner)])) == 3
    assert await find([mark_of(new_id())]) == []


@pytest.mark.parametrize("number", [0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF])
async def test_a_mark_is_the_owners_last_32_bits(world: World, number: int) -> None:
    owner = UUID(int=(1 << 100) + number)
    await world.queued()
    lease = await world.claim(owner=owner)
    assert mark_of(owner) == number
    assert [held.run for held in await world.store.run_sweeps.held_by([number])] == [lease.run]


async def test_a_term_that_was_not_renewed_since_it_was_read_can_be_ended_before_its_time(world: World) -> None:
    lease = await world.running()
    (held,) = await world.store.run_sweeps.held_by([mark_of(world.owner)])
    sweeps = world.store.run_sweeps
    status = await sweeps.reclaim(held.as_expired, cause="worker_died", now=held.expires_at)
    assert status is RunStatus.QUEUED
    run = (await world.facts(lease.run)).run
    assert (run.lease_expirations, run.suspect) == (1, True)
    assert [failure["reason"] for failure in run.attempt_failures] == ["worker_died"]


async def test_a_term_that_was_renewed_since_it_was_read_is_kept(world: World) -> None:
    lease = await world.running()
    (held,) = await world.store.run_sweeps.held_by([mark_of(world.owner)])
    keeper = world.store.lease_keeper()
    keeper.heartbeat(world.owner, [lease], lease=TERM)
    keeper.close()
    assert await world.store.run_sweeps.reclaim(held.as_expired, now=held.expires_at) is None
    assert (await world.facts(lease.run)).run.status is RunStatus.RUNNING


async def test_the_run_of_a_holder_known_dead_is_taken_whatever_its_term_says(world: World) -> None:
    lease = await world.running()
    sweeps = world.store.run_sweeps
    status = await sweeps.reclaim(expired(lease), cause="exited with status 3", now=HOLDER_DEAD)
    assert status is RunStatus.QUEUED
    run = (await world.facts(lease.run)).run
    assert (run.lease_expirations, run.suspect) == (1, True)
    assert [failure["reason"] for failure in run.attempt_failures] == ["exited with status 3"]


@pytest.mark.parametrize("stale", ["owner", "epoch", "ended", "unknown"])
async def test_a_lease_that_is_not_current_is_not_taken_from_a_dead_holder(world: World, stale: str) -> None:
    lease = await world.running()
    if stale == "ended":
        await world.end(lease)
    before = await world.facts(lease.run)
    other = {
        "owner": replace(lease, owner=new_id()),
        "epoch": replace(lease, epoch=lease.epoch + 1),
        "ended": lease,
        "unknown": replace(lease, run=replace(lease.run, run_id=new_id())),
    }[stale]
    assert await world.store.run_sweeps.reclaim(expired(other), now=HOLDER_DEAD) is None
    assert await world.facts(lease.run) == before


@pytest.mark.spec("QUE-6")
async def test_a_run_whose_lease_expired_is_queued_again_as_a_suspect(world: World) -> None:
    lease = await world.running()
    assert await world.crashed(lease) is RunStatus.QUEUED
    facts = await world.facts(lease.run)
    run = facts.run
    assert (run.status, run.lease_expirations, run.suspect) == (RunStatus.QUEUED, 1, True)
    assert (run.lease_owner, run.lease_expires_at, run.lease_epoch) == (None, None, lease.epoch)
    requeued = facts.events[-1]
    assert requeued.payload == RunRequeued(
        reason="lease_expired", epoch=lease.epoch, lease_expirations=1, delay_seconds=1.0
    )
    assert requeued.actor.type == "maintenance"


@pytest.mark.spec("QUE-6")
async def test_each_crash_is_followed_by_a_longer_pause(world: World) -> None:
    lease = await world.running()
    for crash, seconds in ((1, 1), (2, 2), (3, 4)):
        assert await world.crashed(lease, max_attempts=9) is RunStatus.QUEUED
        facts = await world.facts(lease.run)
        assert facts.run.lease_expirations == crash
        assert facts.run.scheduled_for is not None
        pause = facts.run.scheduled_for - facts.events[-1].created_at
        assert abs(pause.total_seconds() - seconds) < 0.5
        lease = await world.claim(now=later(), max_attempts=9)


async def test_a_run_that_crashed_is_not_claimed_before_its_pause_is_over(world: World) -> None:
    lease = await world.running()
    await world.crashed(lease)
    due = (await world.facts(lease.run)).run.scheduled_for
    assert due is not None
    assert await world.claims(now=due - timedelta(milliseconds=1)) == []
    assert (await world.claim(now=due)).run == lease.run


@pytest.mark.spec("QUE-6")
async def test_a_run_fails_when_its_allowance_is_used_up_and_keeps_every_attempt(world: World) -> None:
    lease = await world.running()
    assert await world.crashed(lease, max_attempts=2, cause="killed") is RunStatus.QUEUED
    lease = await world.claim(now=later())
    assert await world.crashed(lease, max_attempts=2) is RunStatus.FAILED
    facts = await world.facts(lease.run)
    assert (facts.run.status, facts.run.lease_expirations) == (RunStatus.FAILED, 2)
    failure = await failure_of(world, facts)
    assert failure.code == "max_attempts_exceeded"
    assert [(attempt["epoch"], attempt["reason"]) for attempt in failure.attempts] == [
        (1, "killed"),
        (2, "lease_expired"),
    ]
    assert list(facts.run.attempt_failures) == failure.attempts
    assert facts.run.finished_at == facts.events[-1].created_at


@pytest.mark.parametrize(
    ("idempotency", "status"),
    [
        (IdempotencyClass.NON_IDEMPOTENT, InvocationStatus.UNCERTAIN),
        (IdempotencyClass.CONDITIONALLY_IDEMPOTENT, InvocationStatus.UNCERTAIN),
        (IdempotencyClass.IDEMPOTENT, InvocationStatus.CANCELLED),
        (IdempotencyClass.READ_ONLY, InvocationStatus.CANCELLED),
    ],
)
async def test_a_started_call_of_a_run_that_fails_ends_by_what_repeating_it_could_do(
    world: World, idempotency: IdempotencyClass, status: InvocationStatus
) -> None:
    lease = await world.running()
    started, waiting = call(lease.run, idempotency=idempotency), call(lease.run, 1, idempotency=idempotency)
    await world.turn(lease, started, waiting)
    await world.start_call(lease, started)
    assert await world.crashed(lease, max_attempts=1) is RunStatus.FAILED
    facts = await world.facts(lease.run)
    assert (facts.status_of(started.id), facts.result_of(started.id).status) == (status, status)
    assert facts.status_of(waiting.id) is InvocationStatus.CANCELLED
    assert facts.types[-1] == "run.failed"


async def test_a_run_that_is_queued_again_keeps_its_calls_as_they_were(world: World) -> None:
    lease = await world.running()
    started = call(lease.run, idempotency=IdempotencyClass.NON_IDEMPOTENT)
    await world.turn(lease, started)
    await world.start_call(lease, started)
    before = (await world.facts(lease.run)).calls
    await world.crashed(lease)
    assert (await world.facts(lease.run)).calls == before


async def test_a_run_that_was_asked_to_cancel_is_cancelled_when_its_lease_expires(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    await world.store.control.cancel(world.scope, lease.run.run_id)
    assert await world.crashed(lease) is RunStatus.CANCELLED
    facts = await world.facts(lease.run)
    assert (facts.run.status, facts.types[-1]) == (RunStatus.CANCELLED, "run.cancelled")
    assert facts.status_of(new.id) is InvocationStatus.CANCELLED


@pytest.mark.spec("QUE-5")
async def test_the_holder_of_a_swept_run_is_fenced(world: World) -> None:
    lease = await world.running()
    await world.crashed(lease)
    with pytest.raises(Fenced):
        await world.turn(lease)


@pytest.mark.parametrize("meanwhile", ["renewed", "handed back", "ended", "taken", "taken again", "unknown"])
async def test_a_lease_that_is_not_expired_any_more_is_left_alone(world: World, meanwhile: str) -> None:
    lease = await world.running()
    candidate, now = expired(lease), later(60)
    if meanwhile == "renewed":
        keeper = world.store.lease_keeper()
        keeper.heartbeat(world.owner, [lease], lease=10 * MINUTE)
        keeper.close()
    elif meanwhile == "handed back":
        await world.hand_back(lease)
    elif meanwhile == "ended":
        await world.end(lease)
    elif meanwhile == "taken":
        await world.hand_back(lease)
        await world.claim(owner=new_id())
    elif meanwhile == "taken again":
        # By the same process: only the epoch tells that this is another lease.
        await world.hand_back(lease)
        await world.claim()
    else:
        candidate = replace(candidate, run=replace(lease.run, run_id=new_id()))
    before = await world.facts(lease.run)
    assert await world.store.run_sweeps.reclaim(candidate, now=now) is None
    assert await world.facts(lease.run) == before


async def test_a_lease_is_not_taken_before_its_term_is_over(world: World) -> None:
    lease = await world.running()
    assert await world.store.run_sweeps.reclaim(expired(lease)) is None
    await world.turn(lease)


async def test_of_many_sweepers_one_counts_the_crash(world: World) -> None:
    lease = await world.running()
    answers, raised = await outcomes(*(world.store.run_sweeps.reclaim(expired(lease), now=later()) for _ in range(5)))
    assert raised == []
    assert sorted(answer is None for answer in answers) == [False] + [True] * 4
    facts = await world.facts(lease.run)
    assert facts.run.lease_expirations == 1
    assert facts.types.count("run.requeued") == 1


# Runs that cannot go on


@pytest.mark.spec("QUE-6")
async def test_a_queued_run_without_allowance_is_found_and_failed(world: World) -> None:
    lease = await world.running()
    await world.crashed(lease)
    sweeps = world.store.run_sweeps
    assert await sweeps.hopeless(10) == []
    assert await sweeps.hopeless(10, max_attempts=1) == [lease.run]
    assert not await sweeps.fail_hopeless(lease.run)
    assert await sweeps.fail_hopeless(lease.run, max_attempts=1)
    failure = await failure_of(world, await world.facts(lease.run))
    assert failure.code == "max_attempts_exceeded"
    assert [attempt["epoch"] for attempt in failure.attempts] == [1]
    assert await sweeps.hopeless(10, max_attempts=1) == []


@pytest.mark.spec("QUE-6")
async def test_a_waiting_run_does_not_fail_for_its_crashes(world: World) -> None:
    await world.crashed(await world.running())
    lease = await world.claim(now=later())
    await world.turn(lease, call(lease.run, status=InvocationStatus.AWAITING_INPUT))
    await world.park(lease, RunStatus.WAITING_INPUT)
    assert await world.store.run_sweeps.hopeless(10, max_attempts=1) == []
    assert not await world.store.run_sweeps.fail_hopeless(lease.run, max_attempts=1)


async def test_a_queued_run_fails_when_its_deadline_has_passed(world: World) -> None:
    run = await world.queued(deadline=later(100))
    sweeps = world.store.run_sweeps
    assert await sweeps.hopeless(10) == []
    assert not await sweeps.fail_hopeless(run)
    assert await sweeps.hopeless(10, now=later(200)) == [run]
    assert await sweeps.fail_hopeless(run, now=later(200))
    assert (await failure_of(world, await world.facts(run))).code == "deadline_exceeded"


async def test_a_waiting_run_fails_when_its_deadline_has_passed_with_its_calls(world: World) -> None:
    lease = await world.running(deadline=later(100))
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.turn(lease, question)
    await world.park(lease, RunStatus.WAITING_INPUT)
    assert await world.store.run_sweeps.hopeless(10, now=later(200)) == [lease.run]
    assert await world.store.run_sweeps.fail_hopeless(lease.run, now=later(200))
    facts = await world.facts(lease.run)
    assert (await failure_of(world, facts)).code == "deadline_exceeded"
    assert facts.result_of(question.id).status is InvocationStatus.CANCELLED


async def test_a_running_run_watches_its_own_deadline(world: World) -> None:
    lease = await world.running(deadline=later(100))
    assert await world.store.run_sweeps.hopeless(10, now=later(200)) == []
    assert not await world.store.run_sweeps.fail_hopeless(lease.run, now=later(200))


async def test_hopeless_runs_are_found_up_to_the_limit(world: World) -> None:
    for _ in range(3):
        await world.queued(deadline=later(10))
    assert len(await world.store.run_sweeps.hopeless(2, now=later(20))) == 2


async def test_failing_a_run_that_is_gone_does_nothing(world: World) -> None:
    run = await world.queued()
    assert not await world.store.run_sweeps.fail_hopeless(replace(run, run_id=new_id()), now=later())


# Waits nobody ended


async def test_a_wait_is_found_when_its_time_has_run_out_and_not_before(world: World) -> None:
    run, (question,) = await world.waiting(InvocationStatus.AWAITING_INPUT, expires_in=MINUTE)
    sweeps = world.store.run_sweeps
    assert await sweeps.expired_waits(10) == []
    assert await sweeps.expired_waits(10, now=later(30)) == []
    assert await sweeps.expired_waits(10, now=later(90)) == [ExpiredWait(run, question.id)]


async def test_waits_without_a_time_and_answered_ones_never_run_out(world: World) -> None:
    await world.waiting(InvocationStatus.AWAITING_INPUT)
    run, (question,) = await world.waiting(InvocationStatus.AWAITING_INPUT, expires_in=MINUTE)
    await world.store.control.answer(world.scope, run.run_id, question.id, "in time")
    assert await world.store.run_sweeps.expired_waits(10, now=later(10_000)) == []


async def test_expired_waits_are_found_oldest_first_up_to_the_limit(world: World) -> None:
    found = []
    for minutes in (3, 1, 2):
        run, (question,) = await world.waiting(InvocationStatus.AWAITING_INPUT, expires_in=minutes * MINUTE)
        found.append(ExpiredWait(run, question.id))
    assert await world.store.run_sweeps.expired_waits(2, now=later()) == [found[1], found[2]]


@pytest.mark.parametrize(
    ("waits_for", "status"),
    [
        (InvocationStatus.AWAITING_INPUT, InvocationStatus.FAILED),
        (InvocationStatus.AWAITING_APPROVAL, InvocationStatus.DENIED),
    ],
)
async def test_a_wait_that_ran_out_is_a_result_and_the_run_goes_on(
    world: World, waits_for: InvocationStatus, status: InvocationStatus
) -> None:
    run, (waiting,) = await world.waiting(waits_for, expires_in=MINUTE)
    assert await world.store.run_sweeps.expire_wait(ExpiredWait(run, waiting.id), now=later())
    facts = await world.facts(run)
    outcome = facts.result_of(waiting.id)
    assert (outcome.status, outcome.code) == (status, "timed_out")
    assert (facts.run.status, facts.run.lease_expirations) == (RunStatus.QUEUED, 0)
    requeued = facts.events[-1].payload
    assert isinstance(requeued, RunRequeued)
    assert requeued.reason == "timeout"


@pytest.mark.parametrize("meanwhile", ["answered", "too early", "ended", "unknown"])
async def test_a_wait_that_has_not_run_out_is_left_alone(world: World, meanwhile: str) -> None:
    run, (question,) = await world.waiting(InvocationStatus.AWAITING_INPUT, expires_in=MINUTE)
    wait, now = ExpiredWait(run, question.id), later()
    if meanwhile == "answered":
        await world.store.control.answer(world.scope, run.run_id, question.id, "yes")
    elif meanwhile == "too early":
        now = later(1)
    elif meanwhile == "ended":
        await world.store.control.cancel(world.scope, run.run_id)
    else:
        wait = replace(wait, call=new_id())
    before = await world.facts(run)
    assert not await world.store.run_sweeps.expire_wait(wait, now=now)
    assert await world.facts(run) == before


async def test_an_answer_and_a_timeout_give_one_result_between_them(world: World) -> None:
    run, (question,) = await world.waiting(InvocationStatus.AWAITING_INPUT, expires_in=MINUTE)
    await outcomes(
        world.store.run_sweeps.expire_wait(ExpiredWait(run, question.id), now=later()),
        world.store.control.answer(world.scope, run.run_id, question.id, "just in time"),
    )
    facts = await world.facts(run)
    assert facts.result_of(question.id).code in {"answered", "timed_out"}
    assert facts.types.count("run.requeued") == 1

"""The store in memory takes its time from the clock it was given, keeps nothing of a failed unit, and takes threads."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from support.contract import TERM, World, call

from wakeful.domain.errors import Unavailable
from wakeful.domain.ids import new_id
from wakeful.domain.ports.sweeps import ExpiredWait
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.persistence.memory import MemoryStore
from wakeful.persistence.memory.records import Records

pytestmark = pytest.mark.anyio

START = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(clock: Clock) -> World:
    return World(MemoryStore(clock=clock))


async def test_what_is_written_carries_the_clocks_time(world: World, clock: Clock) -> None:
    session = await world.session()
    clock.forward(5)
    run = (await world.store.queue.submit(world.submission(session, "hello"))).run
    facts = await world.facts(run)
    assert facts.session.created_at == START
    assert [event.created_at for event in facts.events] == [START, clock.time, clock.time]
    assert facts.session.updated_at == facts.run.created_at == clock.time


async def test_a_lease_expires_by_the_clock(world: World, clock: Clock) -> None:
    lease = await world.running()
    clock.forward(TERM.total_seconds() - 1)
    assert await world.store.run_sweeps.expired_leases(10) == []
    clock.forward(1)
    (expired,) = await world.store.run_sweeps.expired_leases(10)
    assert await world.store.run_sweeps.reclaim(expired) is RunStatus.QUEUED
    assert await world.claims() == []
    clock.forward(1)
    assert (await world.claim()).epoch == lease.epoch + 1


async def test_scheduled_runs_become_due_by_the_clock(world: World, clock: Clock) -> None:
    run = await world.queued(scheduled_for=START + timedelta(minutes=1))
    assert await world.claims() == []
    clock.forward(75)
    (claim,) = await world.claims()
    assert (claim.lease.run, claim.waited_seconds) == (run, 15.0)


async def test_questions_run_out_by_the_clock(world: World, clock: Clock) -> None:
    run, (question,) = await world.waiting(InvocationStatus.AWAITING_INPUT, expires_in=timedelta(minutes=1))
    assert await world.store.run_sweeps.expired_waits(10) == []
    clock.forward(60)
    assert await world.store.run_sweeps.expired_waits(10) == [ExpiredWait(run, question.id)]
    assert await world.store.run_sweeps.expire_wait(ExpiredWait(run, question.id))


async def test_the_age_of_a_tick_grows_with_the_clock(world: World, clock: Clock) -> None:
    await world.store.housekeeping.tick("leases", new_id())
    clock.forward(7)
    assert await world.store.housekeeping.last_tick("leases") == timedelta(seconds=7)


async def test_a_clock_that_is_set_back_does_not_move_a_log_back(world: World, clock: Clock) -> None:
    lease = await world.running()
    clock.forward(-3600)
    appended = await world.turn(lease)
    facts = await world.facts(lease.run)
    assert appended.at == facts.events[-2].created_at == START
    assert facts.session.updated_at == START


def test_a_unit_that_fails_puts_back_everything_in_it(clock: Clock) -> None:
    records = Records(clock)
    with records.unit():
        records.ticks.put("kept", START)

    def change() -> None:
        with records.unit():
            records.ticks.put("kept", START + TERM)
            records.ticks.put("new", START)
            with records.unit():
                records.ticks.delete("kept")
            raise Unavailable("on purpose")

    with pytest.raises(Unavailable):
        change()
    assert records.ticks.items() == [("kept", START)]


def test_a_unit_waits_for_the_one_of_another_thread(clock: Clock) -> None:
    records = Records(clock)
    order: list[str] = []
    entered = threading.Event()

    def other() -> None:
        entered.set()
        with records.unit():
            order.append("other")

    with records.unit():
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait(timeout=10)
        order.append("mine")
    thread.join(timeout=10)
    assert order == ["mine", "other"]


async def test_many_threads_count_each_append_once(world: World, clock: Clock) -> None:
    lease = await world.running()
    keeper = world.store.lease_keeper()
    answers: list[bool] = []

    def beat() -> None:
        answers.extend(bool(keeper.heartbeat(world.owner, [lease], lease=TERM).renewed) for _ in range(50))

    threads = [threading.Thread(target=beat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(1, 51):
        await world.turn(lease, call(lease.run, step=step), step=step)
    for thread in threads:
        thread.join(timeout=30)
    facts = await world.facts(lease.run)
    assert answers == [True] * 200
    assert (facts.run.step, len(facts.calls), facts.session.last_sequence) == (50, 50, 54)

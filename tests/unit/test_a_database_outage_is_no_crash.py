"""Leases that ran out while the database was away are not crashes: workers get one lease to renew them."""

from datetime import timedelta

import pytest
from support.pools import AGENT, LEASE, read, submit
from support.runs import Clock

from wakeful.actors.slots import Slots
from wakeful.domain.errors import Unavailable
from wakeful.domain.ids import new_id
from wakeful.domain.scopes import RunRef
from wakeful.persistence.memory import MemoryStore
from wakeful.scheduler.leases import LeaseSweep, LeaseSweepConfig

pytestmark = pytest.mark.anyio


class Monotonic:
    """The sweeps' own clock, moved by the test together with the database's."""

    def __init__(self, clock: Clock) -> None:
        self.now, self._clock = 1000.0, clock

    def monotonic(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self._clock.pass_(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    fake = Monotonic(clock)
    monkeypatch.setattr("wakeful.scheduler.leases.time", fake)
    return fake


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


def sweep(store: MemoryStore) -> LeaseSweep:
    return LeaseSweep(store.run_sweeps, store.housekeeping, config=LeaseSweepConfig(lease=LEASE))


async def running(store: MemoryStore) -> RunRef:
    run = await submit(store)
    await store.queue.claim(new_id(), capacity=Slots(1).capacity(), agents=(AGENT,), lease=LEASE, suspects=0)
    return run


async def crashes(store: MemoryStore, run: RunRef) -> int:
    return (await read(store, run)).lease_expirations


async def test_without_an_outage_an_expired_lease_is_swept_at_once(store: MemoryStore, time: Monotonic) -> None:
    run, only = await running(store), sweep(store)
    for _ in range(30):
        await only.run_once()
        time.pass_(1)
    assert await crashes(store, run) == 0
    time.pass_(1)
    assert (await only.run_once()).requeued == 1


async def test_after_an_outage_leases_are_left_alone_for_one_lease(store: MemoryStore, time: Monotonic) -> None:
    run, only = await running(store), sweep(store)
    await only.run_once()
    time.pass_(60)
    for _ in range(30):
        assert (await only.run_once()).held_off == 1
        time.pass_(1)
    assert await crashes(store, run) == 0
    assert (await only.run_once()).requeued == 1


async def test_the_first_tick_after_an_outage_does_not_hide_it_from_the_other_scheduler(
    store: MemoryStore, time: Monotonic
) -> None:
    run, first, second = await running(store), sweep(store), sweep(store)
    await first.run_once()
    await second.run_once()
    time.pass_(60)
    assert (await first.run_once()).held_off == 1
    assert (await second.run_once()).held_off == 1
    time.pass_(20)
    assert (await first.run_once()).held_off == 1
    assert await crashes(store, run) == 0


async def test_a_scheduler_that_starts_while_another_holds_off_holds_off_too(
    store: MemoryStore, time: Monotonic
) -> None:
    run, first = await running(store), sweep(store)
    await first.run_once()
    time.pass_(60)
    await first.run_once()
    time.pass_(2)
    assert (await sweep(store).run_once()).held_off == 1
    assert await crashes(store, run) == 0


async def test_a_scheduler_that_starts_beside_a_working_one_sweeps_at_once(store: MemoryStore, time: Monotonic) -> None:
    await running(store)
    first = sweep(store)
    for _ in range(30):
        await first.run_once()
        time.pass_(1)
    time.pass_(1)
    assert (await sweep(store).run_once()).requeued == 1


async def test_an_outage_is_seen_by_the_sweep_that_was_refused_meanwhile(store: MemoryStore, time: Monotonic) -> None:
    run, only = await running(store), sweep(store)
    await only.run_once()
    last_tick = store.housekeeping.last_tick

    async def away(sweep: str) -> timedelta | None:
        raise Unavailable("away")

    store.housekeeping.last_tick = away  # type: ignore[method-assign]
    for _ in range(40):
        time.pass_(1)
        with pytest.raises(Unavailable):
            await only.run_once()
    store.housekeeping.last_tick = last_tick  # type: ignore[method-assign]
    assert (await only.run_once()).held_off == 1
    assert await crashes(store, run) == 0

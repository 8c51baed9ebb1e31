"""Sweeps: bounded batches, one transaction per candidate, and what a failing candidate may not stop."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.pools import AGENT, LEASE, SCOPE, read, status, submit
from support.runs import Clock

from wakeful.actors.slots import Slots
from wakeful.domain.errors import ConfigurationError, Unavailable
from wakeful.domain.ids import new_id
from wakeful.domain.ports.sweeps import ExpiredLease
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.persistence.memory import MemoryStore
from wakeful.scheduler.deleting import DeletingSweep
from wakeful.scheduler.leases import LeaseCounts, LeaseSweep, LeaseSweepConfig
from wakeful.scheduler.sweeping import SweepConfig, each
from wakeful.scheduler.taking import TakingCounts, TakingSweep

pytestmark = pytest.mark.anyio


class Woken:
    def __init__(self) -> None:
        self.classes: list[PriorityClass] = []

    def wake(self, priority: PriorityClass) -> None:
        self.classes.append(priority)


def clocked() -> tuple[MemoryStore, Clock]:
    clock = Clock()
    return MemoryStore(clock=clock), clock


async def claim(store: Any, count: int) -> None:
    for _ in range(count):
        await submit(store)
    await store.queue.claim(new_id(), capacity=Slots(count).capacity(), agents=(AGENT,), lease=LEASE, suspects=0)


def leases(store: MemoryStore, **config: Any) -> LeaseSweep:
    return LeaseSweep(store.run_sweeps, store.housekeeping, config=LeaseSweepConfig(**config))


async def test_runs_whose_lease_expired_go_back_to_the_queue() -> None:
    store, clock = clocked()
    await claim(store, 3)
    sweep = leases(store)
    assert await sweep.run_once() == LeaseCounts()
    clock.pass_(seconds=4)
    await store.housekeeping.tick("leases", new_id())
    clock.pass_(seconds=27)
    await store.housekeeping.tick("leases", new_id())
    assert await sweep.run_once() == LeaseCounts(requeued=3)
    assert await store.run_sweeps.expired_leases(10) == []


async def test_more_than_one_batch_is_handled_in_one_pass_and_told_after_each() -> None:
    store, clock = clocked()
    await claim(store, 5)
    clock.pass_(seconds=31)
    told: list[object] = []
    sweep = LeaseSweep(store.run_sweeps, store.housekeeping, config=LeaseSweepConfig(batch=2), after_batch=told.append)
    assert await sweep.run_once() == LeaseCounts(requeued=5)
    assert told == [LeaseCounts(requeued=2), LeaseCounts(requeued=4), LeaseCounts(requeued=5)]


async def test_one_pass_is_bounded() -> None:
    store, clock = clocked()
    await claim(store, 5)
    clock.pass_(seconds=31)
    sweep = leases(store, batch=2, batches=1)
    assert (await sweep.run_once()).requeued == 2


async def test_a_candidate_that_raises_stops_neither_its_batch_nor_those_behind_it() -> None:
    handled: list[int] = []

    async def find(limit: int) -> list[int]:
        return [each for each in range(6) if each not in handled][:limit]

    async def handle(candidate: int) -> None:
        if candidate < 2:
            raise ValueError(candidate)
        handled.append(candidate)

    failed = await each(find, handle, SweepConfig(batch=2), name="test", after_batch=lambda: None)
    assert (failed, handled) == (2, [2, 3, 4, 5])


async def test_an_unreachable_database_ends_the_pass() -> None:
    async def find(limit: int) -> list[int]:
        return [1, 2][:limit]

    async def handle(_candidate: int) -> None:
        raise Unavailable("away")

    with pytest.raises(Unavailable):
        await each(find, handle, SweepConfig(), name="test", after_batch=lambda: None)


async def test_two_sweeps_of_the_same_leases_count_one_crash() -> None:
    store, clock = clocked()
    await claim(store, 1)
    clock.pass_(seconds=31)
    (expired,) = await store.run_sweeps.expired_leases(1)
    assert (await leases(store).run_once()).requeued == 1
    other = leases(store)

    async def stale(limit: int, **_options: Any) -> list[ExpiredLease]:
        return [expired]

    store.run_sweeps.expired_leases = stale  # type: ignore[method-assign]
    assert await other.run_once() == LeaseCounts(kept=1)
    assert (await read(store, expired.run)).lease_expirations == 1


async def test_what_was_requeued_is_hinted_at_when_its_backoff_is_over() -> None:
    import asyncio

    store, clock = clocked()
    await claim(store, 1)
    clock.pass_(seconds=31)
    woken = Woken()
    await LeaseSweep(store.run_sweeps, store.housekeeping, wakeups=woken).run_once()
    assert woken.classes == []
    async with asyncio.timeout(10):
        while not woken.classes:  # noqa: ASYNC110 - a timer of the loop, with no signal
            await asyncio.sleep(0.01)
    assert woken.classes == list(PriorityClass)


async def test_a_run_whose_deadline_passed_in_the_queue_fails() -> None:
    from wakeful.domain.runs import Submission
    from wakeful.domain.sessions import NewSession

    store, clock = clocked()
    session = new_id()
    await store.sessions.create(NewSession(SCOPE, AGENT, session_id=session))
    submission = Submission(SCOPE, session, AGENT, 1, deadline=clock() + timedelta(seconds=5))
    run = (await store.queue.submit(submission)).run
    find = partial(store.run_sweeps.hopeless, max_attempts=3)
    sweep = TakingSweep("hopeless", find, partial(store.run_sweeps.fail_hopeless, max_attempts=3))
    assert await sweep.run_once() == TakingCounts()
    clock.pass_(seconds=6)
    assert await sweep.run_once() == TakingCounts(taken=1)
    assert await status(store, run) is RunStatus.FAILED


async def test_expired_keys_of_ended_runs_are_deleted() -> None:
    from wakeful.domain.runs import Submission
    from wakeful.domain.sessions import NewSession

    store, clock = clocked()
    for number in range(3):
        session = new_id()
        await store.sessions.create(NewSession(SCOPE, AGENT, session_id=session))
        submitted = await store.queue.submit(Submission(SCOPE, session, AGENT, 1, key=f"k{number}", request_hash="h"))
        await store.control.cancel(SCOPE, submitted.run.run_id)
    sweep = DeletingSweep("keys", store.housekeeping.expire_keys, config=SweepConfig(batch=2))
    assert (await sweep.run_once()).deleted == 0
    clock.pass_(hours=25)
    assert (await sweep.run_once()).deleted == 3


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (SweepConfig, {"interval": timedelta(0)}),
        (SweepConfig, {"batch": 0}),
        (SweepConfig, {"batches": 0}),
        (LeaseSweepConfig, {"lease": timedelta(0)}),
        (LeaseSweepConfig, {"interval": timedelta(seconds=5)}),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: type[SweepConfig], options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        config(**options)

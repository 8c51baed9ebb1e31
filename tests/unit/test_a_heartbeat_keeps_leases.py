"""The heartbeat: a thread of its own, and what it tells the holders."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from support.pools import LEASE, Executions, let_expire, make_pool, memory, running, status, submit, until

from wakeful.actors.heartbeat import EXIT_STUCK, Heartbeat
from wakeful.actors.holdings import Holdings
from wakeful.actors.loop_watch import LoopWatch
from wakeful.actors.slots import Slots
from wakeful.domain.errors import Unavailable
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import RunStatus
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio

SHORT = timedelta(seconds=0.3)


@pytest.mark.spec("QUE-4")
async def test_a_loop_blocked_for_three_leases_loses_no_lease() -> None:
    store = memory()
    executions = Executions(store)
    run = await submit(store)

    async def block(holding: Holding) -> Ending:
        time.sleep(3 * SHORT.total_seconds())  # noqa: ASYNC251 - the fault under test
        assert await store.run_sweeps.expired_leases(10) == []
        assert holding.may_start()
        executions.let_go.set()
        return await Executions(store).execute(holding)

    executions.bodies[run.run_id] = block
    async with running(make_pool(store, executions, lease=SHORT)):
        await until(executions.let_go.is_set)
        await until_status(store, run, RunStatus.COMPLETED)


async def test_trust_lasts_one_lease_from_the_sending_of_the_last_renewal() -> None:
    store = memory()
    executions = Executions(store, stay=True)
    run = await submit(store)
    async with running(make_pool(store, executions, heartbeat=timedelta(milliseconds=20))):
        await until(lambda: executions.started)
        holding = executions.of(run)
        first = holding.trusted_until
        await until(lambda: holding.trusted_until > first)
        assert holding.trusted_until <= time.monotonic() + LEASE.total_seconds()


async def test_the_holder_of_a_lost_lease_is_told() -> None:
    store = memory()
    executions = Executions(store, stay=True)
    run = await submit(store)
    async with running(make_pool(store, executions, heartbeat=timedelta(milliseconds=20))) as pool:
        await until(lambda: executions.started)
        let_expire(store, executions.of(run).lease)
        (expired,) = await store.run_sweeps.expired_leases(1)
        await store.run_sweeps.reclaim(expired)
        await until(lambda: executions.of(run).lost)
        await until(lambda: not pool.running)
    assert await status(store, run) is RunStatus.QUEUED


async def test_the_holder_of_a_run_that_is_to_be_cancelled_is_told() -> None:
    from support.pools import SCOPE

    store = memory()
    executions = Executions(store, stay=True)
    run = await submit(store)
    async with running(make_pool(store, executions, heartbeat=timedelta(milliseconds=20))):
        await until(lambda: executions.started)
        await store.control.cancel(SCOPE, run.run_id)
        await until(lambda: executions.of(run).cancel_requested)
        await until(executions.of(run).changed.is_set)


async def test_after_errors_it_goes_on_with_what_is_left_of_its_connection() -> None:
    store = memory()
    executions = Executions(store, stay=True)
    run = await submit(store)
    made: list[_Failing] = []

    def keeper() -> "_Failing":
        made.append(_Failing(store.lease_keeper(), failures=2))
        return made[-1]

    pool = make_pool(store, executions, heartbeat=timedelta(milliseconds=20))
    pool._keeper = keeper
    async with running(pool):
        await until(lambda: executions.started)
        first = executions.of(run).trusted_until
        await until(lambda: executions.of(run).trusted_until > first)
        assert not made[0].closed
    assert [each.closed for each in made] == [True]
    assert made[0].failures == 0


async def test_an_abandoned_run_is_not_executed_again_under_the_same_lease() -> None:
    store = memory()
    executions = Executions(store)
    run = await submit(store)

    async def abandon(_holding: Holding) -> Ending:
        return Ending.ABANDONED

    executions.bodies[run.run_id] = abandon
    beats = _Counting(store.lease_keeper())
    pool = make_pool(store, executions, heartbeat=timedelta(milliseconds=10))
    pool._keeper = lambda: beats
    async with running(pool):
        await until(lambda: executions.started and not pool.running)
        reached = beats.count + 4
        await until(lambda: beats.count > reached)
    assert executions.runs == [run]


async def test_a_run_without_progress_outside_a_declared_wait_is_no_longer_vouched_for() -> None:
    store = memory()
    stuck, waiting = Holdings(), await _held(store)
    idle = await _held(store)
    waiting.waits = 1
    for holding in (waiting, idle):
        stuck.add(holding)
    beat = _heartbeat(store, stuck, stuck_after=timedelta(seconds=0.05), owner=idle.lease.owner)
    beat.start()
    try:
        await until(lambda: idle.lease.run.run_id in beat._named_stuck)
        trusted = waiting.trusted_until
        await until(lambda: waiting.trusted_until > trusted)
        assert beat._named_stuck == {idle.lease.run.run_id}
        forgotten = idle.trusted_until
        trusted = waiting.trusted_until
        await until(lambda: waiting.trusted_until > trusted)
        assert idle.trusted_until == forgotten
    finally:
        await beat.stop()


async def test_a_loop_that_does_not_come_back_hands_the_neighbours_back_and_ends_the_process() -> None:
    from contextlib import asynccontextmanager

    store = memory()
    holdings = Holdings()
    culprit, neighbour, paying = await _held(store), await _held(store), await _held(store)
    paying.unrepeatable = 1
    for holding in (culprit, neighbour, paying):
        holding.waits = 1
        holdings.add(holding)
    ended: list[int] = []

    @asynccontextmanager
    async def open_log() -> Any:
        yield store.log

    watch = LoopWatch(asyncio.get_running_loop())
    beat = _heartbeat(
        store,
        holdings,
        owner=culprit.lease.owner,
        watch=watch,
        stuck_after=timedelta(seconds=0.1),
        give_up_after=timedelta(seconds=0.1),
        open_log=open_log,
        exit_process=ended.append,
    )
    beat.start()

    async def block() -> None:
        while not ended:
            time.sleep(0.01)  # noqa: ASYNC251 - the fault under test

    async def run() -> None:
        watch.executing(culprit.lease.run.run_id)
        await asyncio.create_task(block())  # as a tool does: from a task that the run has started

    await asyncio.create_task(run())
    await beat.stop()
    assert ended[0] == EXIT_STUCK
    assert await status(store, neighbour.lease.run) is RunStatus.QUEUED
    assert neighbour.lost
    assert await status(store, culprit.lease.run) is RunStatus.RUNNING
    assert await status(store, paying.lease.run) is RunStatus.RUNNING


def _heartbeat(store: Any, holdings: Holdings, *, owner: UUID, **options: Any) -> Heartbeat:
    loop = asyncio.get_running_loop()
    options.setdefault("watch", LoopWatch(loop))
    return Heartbeat(
        owner=owner,
        keeper=store.lease_keeper,
        holdings=holdings,
        loop=loop,
        lease=LEASE,
        interval=timedelta(milliseconds=20),
        adopt=None,
        **options,
    )


OWNER = UUID(int=7)


async def _held(store: Any) -> Holding:
    await submit(store)
    (claim,) = await store.queue.claim(OWNER, capacity=Slots(1).capacity(), agents=("clerk",), lease=LEASE, suspects=1)
    return Holding(claim, trusted_until=time.monotonic() + LEASE.total_seconds())


async def until_status(store: Any, run: RunRef, wanted: RunStatus) -> None:
    async with asyncio.timeout(10):
        while await status(store, run) is not wanted:  # noqa: ASYNC110 - the store has no signal for it
            await asyncio.sleep(0.005)


class _Failing:
    def __init__(self, keeper: Any, *, failures: int) -> None:
        self._keeper, self.failures, self.closed = keeper, failures, False

    def heartbeat(self, owner: UUID, leases: Sequence[Lease], *, lease: timedelta) -> Any:
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        return self._keeper.heartbeat(owner, leases, lease=lease)

    def wait(self, seconds: float, wake: int) -> bool:
        return bool(self._keeper.wait(seconds, wake))

    def close(self) -> None:
        self.closed = True
        self._keeper.close()


class _Counting(_Failing):
    def __init__(self, keeper: Any) -> None:
        super().__init__(keeper, failures=0)
        self.count = 0

    def heartbeat(self, owner: UUID, leases: Sequence[Lease], *, lease: timedelta) -> Any:
        self.count += 1
        return super().heartbeat(owner, leases, lease=lease)

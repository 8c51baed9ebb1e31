"""The faults of a storm, one after another, chosen by dice."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from wakeful.bootstrap.stack import Child, Stack
from wakeful.domain.errors import Timeout, Unavailable
from wakeful.domain.ports.wakeups import Wakeups
from wakeful.domain.runs import Run
from wakeful.domain.states import PriorityClass
from wakeful.faults.chaos import Chaos, Kill
from wakeful.faults.proxy import FaultProxy
from wakeful.faults.storm.counts import StormCounts
from wakeful.faults.storm.servers import kill_database, restart_database, stop_broker

__all__ = ["FAULTS", "Weather"]

LULL_SECONDS = (0.2, 1.5)
BROKER_STOP_SECONDS = 2.0
STALL_SECONDS = 1.0
DELAY_SECONDS, DELAYED_FOR_SECONDS = 0.05, 2.0
LOST_AT_ONCE = 3
COMMITTING = ("append_v1", "submit_v1", "SKIP LOCKED", "COMMIT")
SPURIOUS = 20


class Weather:
    """Faults on a stack whose children reach the database through `proxy`."""

    def __init__(
        self,
        stack: Stack,
        proxy: FaultProxy,
        chaos: Chaos,
        wakeups: Wakeups,
        dice: random.Random,
        lease: timedelta,
        counts: StormCounts,
    ) -> None:
        self._stack, self._proxy, self._chaos, self._wakeups = stack, proxy, chaos, wakeups
        self._dice, self._lease, self.counts = dice, lease, counts
        self._under_way: asyncio.Future[None] | None = None
        self.kills: list[Kill] = []
        self.hits: Counter[UUID] = Counter()
        """How often each run may have lost its lease by a fault."""

    async def rage(self) -> None:
        """Until cancelled; `calm` is to be called then."""
        names = [name for name, weight in FAULTS.items() for _ in range(weight)]
        while True:
            name = self._dice.choice(names)
            fault: Callable[[], Awaitable[None]] = getattr(self, name)
            self._under_way = asyncio.ensure_future(self._make(fault))
            await asyncio.shield(self._under_way)
            await asyncio.sleep(self._dice.uniform(*LULL_SECONDS))

    async def _make(self, fault: Callable[[], Awaitable[None]]) -> None:
        with suppress(Unavailable):  # what cannot be made for want of a connection is made another time
            await fault()

    async def calm(self) -> None:
        """Bring the fault that is under way to its end; then nothing is in force any more."""
        if self._under_way is not None:
            await self._under_way
        self._proxy.fill_hole()
        self._proxy.flow()
        self._proxy.lose_answers("", times=0)
        self.counts.answers_lost = self._proxy.landed.answers_lost

    async def kill_worker(self) -> None:
        kill = await self._chaos.kill_worker()
        if kill is not None:
            self.kills.append(kill)
            self._hit(kill.runs)
            self.counts.kills += 1

    async def pause_worker(self) -> None:
        """Frozen for longer than its lease: it wakes up as one who has lost everything and does not know."""

        async def pause(worker: Child) -> None:
            os.kill(worker.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(self._lease.total_seconds() * 1.5)
            finally:
                os.kill(worker.pid, signal.SIGCONT)

        held = await self._chaos.with_busy_worker(pause)
        if held:
            self._hit(held)
            self.counts.pauses += 1

    async def drain_worker(self) -> None:
        worker = self._dice.choice(self._stack.workers)
        if await asyncio.to_thread(_serves, worker):
            await asyncio.to_thread(worker.stop)
            worker.start()
            self.counts.drains += 1

    async def kill_scheduler(self) -> None:
        scheduler = self._stack.scheduler
        if scheduler is not None and await asyncio.to_thread(_serves, scheduler):
            await asyncio.to_thread(scheduler.restart)
            self.counts.scheduler_kills += 1

    async def restart_database(self) -> None:
        await restart_database(self._stack)
        self.counts.database_restarts += 1

    async def kill_database(self) -> None:
        await kill_database(self._stack)
        self.counts.database_kills += 1

    async def cut(self) -> None:
        self.counts.cuts += self._proxy.cut()

    async def stall(self) -> None:
        await self._partition(self._proxy.stall, self._proxy.flow)
        self.counts.stalls += 1

    async def black_hole(self) -> None:
        before = self._proxy.landed.holes
        await self._partition(self._proxy.black_hole, self._proxy.fill_hole)
        self.counts.black_holes += self._proxy.landed.holes - before

    async def delay(self) -> None:
        self._proxy.delay(DELAY_SECONDS)
        await asyncio.sleep(DELAYED_FOR_SECONDS)
        self._proxy.flow()
        self.counts.delays += 1

    async def lose_answers(self) -> None:
        before = self._proxy.landed.answers_lost
        self._proxy.lose_answers(self._dice.choice(COMMITTING), times=self._dice.randint(1, LOST_AT_ONCE))
        await asyncio.sleep(0.5)
        self.counts.answers_lost += self._proxy.landed.answers_lost - before

    async def flush_broker(self) -> None:
        await self._chaos.flush_broker()
        self.counts.broker_flushes += 1

    async def stop_broker(self) -> None:
        await stop_broker(self._stack, BROKER_STOP_SECONDS)
        self.counts.broker_stops += 1

    async def wake_in_vain(self) -> None:
        """Wakeups that nobody meant, many times and in any order."""
        for _ in range(SPURIOUS):
            self._wakeups.wake(self._dice.choice(tuple(PriorityClass)))
        self.counts.spurious_wakeups += SPURIOUS

    async def lose_checkpoints(self) -> None:
        self.counts.checkpoints_deleted += await self._chaos.lose_checkpoints()

    async def _partition(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        """Nobody reaches the database: leases may run out, so whoever holds one counts as hit."""
        self._hit(await self._chaos.running())
        begin()
        try:
            await asyncio.sleep(STALL_SECONDS)
        finally:
            end()

    def _hit(self, runs: Sequence[Run]) -> None:
        self.hits.update(run.ref.run_id for run in runs)
        self.counts.runs_hit += len(runs)


FAULTS = {
    "kill_worker": 6,
    "pause_worker": 2,
    "drain_worker": 2,
    "kill_scheduler": 1,
    "restart_database": 1,
    "kill_database": 1,
    "cut": 2,
    "stall": 1,
    "black_hole": 2,
    "delay": 1,
    "lose_answers": 6,
    "flush_broker": 2,
    "stop_broker": 1,
    "wake_in_vain": 1,
    "lose_checkpoints": 4,
}
"""Each fault by name, and how often it comes among the others."""


def _serves(child: Child) -> bool:
    try:
        child.wait_ready(0.0)
    except Timeout:
        return False
    return child.running

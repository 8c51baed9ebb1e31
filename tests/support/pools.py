"""A pool over a store in memory, with runs whose executions the test decides."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from wakeful.actors.pool import Pool
from wakeful.actors.slots import Slots
from wakeful.domain.appends import Append, RunChange
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunCompleted, RunRequeued
from wakeful.domain.ids import new_id
from wakeful.domain.runs import Lease, Message, Run, Submission
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.persistence.memory import MemoryStore
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending
from wakeful.scheduler.ticker import Ticker

AGENT = "clerk"
LEASE = timedelta(seconds=30)
SCOPE = Scope(new_id(), new_id())

Body = Callable[[Holding], Awaitable[Ending]]


async def until(true: Callable[[], Any], seconds: float = 10.0) -> None:
    """Return when `true()` is; what it looks at has no signal to wait for."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)


async def submit(store: Any, *, priority: PriorityClass = PriorityClass.INTERACTIVE, agent: str = AGENT) -> RunRef:
    session_id = new_id()
    await store.sessions.create(NewSession(SCOPE, agent, session_id=session_id))
    submission = Submission(SCOPE, session_id, agent, 1, messages=(Message("go"),), priority=priority)
    submitted = await store.queue.submit(submission)
    run: RunRef = submitted.run
    return run


async def status(store: Any, run: RunRef) -> RunStatus:
    return (await read(store, run)).status


async def read(store: Any, run: RunRef) -> Run:
    found: Run = await store.runs.get(SCOPE, run.run_id)
    return found


async def release(store: Any, lease: Lease, to: RunStatus) -> None:
    """What a real executor's last append does."""
    payload = (
        RunRequeued(reason="drain", epoch=lease.epoch)
        if to is RunStatus.QUEUED
        else RunCompleted(steps=0, tool_calls=0)
    )
    event = NewEvent(payload, Actor("worker", str(lease.owner)), run_id=lease.run.run_id)
    await store.log.append(Append(lease.run.session, (event,), lease=lease, run=RunChange(status=to)))


def let_expire(store: Any, lease: Lease) -> None:
    """A renewal for no time at all."""
    keeper = store.lease_keeper()
    assert keeper.heartbeat(lease.owner, [lease], lease=timedelta(0)).renewed
    keeper.close()


@dataclass
class Executions:
    """An executor of runs that end when the test says so, at once unless told to stay."""

    store: Any
    stay: bool = False
    started: list[Holding] = field(default_factory=list)
    bodies: dict[UUID, Body] = field(default_factory=dict)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, holding: Holding) -> Ending:
        self.started.append(holding)
        if body := self.bodies.get(holding.lease.run.run_id):
            return await body(holding)
        if self.stay:
            with holding.waiting_outside():
                await self._called_away(holding)
        if holding.lost:
            return Ending.FENCED
        if holding.draining:
            await release(self.store, holding.lease, RunStatus.QUEUED)
            return Ending.HANDED_BACK
        await release(self.store, holding.lease, RunStatus.COMPLETED)
        return Ending.COMPLETED

    async def _called_away(self, holding: Holding) -> None:
        changed = asyncio.ensure_future(holding.changed.wait())
        let_go = asyncio.ensure_future(self.let_go.wait())
        await asyncio.wait({changed, let_go}, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        let_go.cancel()

    def of(self, run: RunRef) -> Holding:
        return next(h for h in reversed(self.started) if h.lease.run == run)

    @property
    def runs(self) -> list[RunRef]:
        return [holding.lease.run for holding in self.started]


def make_pool(store: Any, executions: Any, **options: Any) -> Pool:
    options.setdefault("slots", Slots(8))
    options.setdefault("lease", LEASE)
    options.setdefault("poll", timedelta(milliseconds=20))
    return Pool(
        queue=store.queue,
        keeper=store.lease_keeper,
        executor=executions,
        agents=(AGENT,),
        ticker=Ticker(),
        sweeps=store.run_sweeps,
        **options,
    )


@asynccontextmanager
async def running(pool: Pool) -> AsyncIterator[Pool]:
    try:
        await pool.start()
        yield pool
    finally:
        await pool.stop()


def memory() -> MemoryStore:
    return MemoryStore()

"""A worker inside the test: claims from any store and executes, with nothing that could interrupt it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

from wakeful.app import App
from wakeful.domain.states import PriorityClass
from wakeful.persistence.memory import MemoryStore
from wakeful.runtime.agent_driver import AgentDriver
from wakeful.runtime.executor import Executor
from wakeful.runtime.holding import Holding

LEASE = timedelta(minutes=10)


@asynccontextmanager
async def worker_in_process(store: MemoryStore, app: App, *, slots: int = 32) -> AsyncIterator[None]:
    """Executes whatever is queued for as long as the block runs; an executor that raises fails the block."""
    catalogue = app.catalogue(make_driver=AgentDriver)
    executor = Executor(
        log=store.log, queue=store.queue, sessions=store.sessions, catalogue=catalogue, artifacts=store.artifacts
    )
    async with asyncio.TaskGroup() as group:
        claiming = group.create_task(_claim_forever(store, executor, catalogue.names, slots))
        yield
        claiming.cancel()


async def _claim_forever(store: MemoryStore, executor: Executor, agents: tuple[str, ...], slots: int) -> None:
    owner, running = uuid4(), set[asyncio.Task[object]]()
    try:
        while True:
            free = slots - len(running)
            claims = await store.queue.claim(
                owner, capacity=dict.fromkeys(PriorityClass, free), agents=agents, lease=LEASE, suspects=8
            )
            for claim in claims:
                holding = Holding(claim, trusted_until=time.monotonic() + LEASE.total_seconds())
                running.add(asyncio.create_task(executor.execute(holding)))
            await asyncio.sleep(0.005)  # Polls, as the worker of a broken broker does.
            for task in [task for task in running if task.done()]:
                running.discard(task)
                task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

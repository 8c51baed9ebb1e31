"""Faults that land: each looks first whether it would hit something, and counts only what it hit.

A run may lose its lease three times before it is failed for good. That rule is for poison, and the killer is no
poison: it never hits a run a third time, and seldom one that has not moved since its last crash, because on a
crowded machine such a run may lose a short lease by itself.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import redis.asyncio

from wakeful.bootstrap.stack import Child, ChildDied, Stack
from wakeful.domain.errors import Timeout
from wakeful.domain.ports.checkpoints import Checkpoints
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS
from wakeful.domain.ports.sessions import RunReader
from wakeful.domain.runs import Run
from wakeful.domain.scopes import Scope
from wakeful.domain.states import RunStatus
from wakeful.faults.owners import OwnerNotes

__all__ = ["Chaos", "ChaosCounts", "Kill", "MayKill", "StoreUnderTest"]

# A statement that a stopped process had sent before is answered by the server all the same.
IN_FLIGHT_SECONDS = 0.05
LONGEST_STOP_SECONDS = 0.5
MOST_RUNNING = 1000
AGAIN_AT_ONCE = 0.25
"""How often a kill may hit a run again before it has moved."""


class StoreUnderTest(Protocol):
    """The ports that the faults need."""

    @property
    def runs(self) -> RunReader: ...
    @property
    def checkpoints(self) -> Checkpoints: ...


@dataclass(slots=True)
class ChaosCounts:
    kills: int = 0
    runs_hit: int = 0
    """Runs that were executing in a killed process, each time it was killed."""
    checkpoints_deleted: int = 0
    broker_flushes: int = 0


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed, and the runs it held."""

    worker: str
    pid: int
    runs: tuple[Run, ...]
    at: float
    """When, in seconds of the epoch."""


MayKill = Callable[[Sequence[Run]], Awaitable[bool]]
"""Told the runs a stopped worker holds: whether it may be killed now."""


async def _anything(held: Sequence[Run]) -> bool:
    return True


class Chaos:
    """Faults on a stack, chosen by `dice`."""

    def __init__(
        self,
        stack: Stack,
        store: StoreUnderTest,
        scope: Scope,
        notes: OwnerNotes,
        dice: random.Random,
        *,
        longest_stop_seconds: float = LONGEST_STOP_SECONDS,
    ) -> None:
        """`longest_stop_seconds` is how long a worker may stand still while its kill is judged: well below a lease."""
        self._longest_stop_seconds = longest_stop_seconds
        self.counts = ChaosCounts()
        self.hits: Counter[UUID] = Counter()
        """How often each run was executing in a process that was killed."""
        self._stack, self._store, self._scope, self._notes, self._dice = stack, store, scope, notes, dice

    async def kill_worker(self, may: MayKill = _anything) -> Kill | None:
        """SIGKILL a worker that executes runs, and start it anew. None when no worker may be killed now: none is
        ready and busy, each holds a run that has no more crashes to spare, or `may` says no."""
        ready = [worker for worker in self._stack.workers if _ready(worker)]
        self._dice.shuffle(ready)
        for worker in ready:
            again = self._dice.random() < AGAIN_AT_ONCE
            kill = await self._try(worker, may if again else _nobody_suspect(may))
            if kill is not None:
                return kill
        return None

    async def with_busy_worker(self, fault: Callable[[Child], Awaitable[None]]) -> list[Run]:
        """Do something to a worker that executes runs, which may cost each of them its lease; what it held, nothing
        when no worker is busy or one of its runs has no more crashes to spare."""
        ready = [worker for worker in self._stack.workers if _ready(worker)]
        self._dice.shuffle(ready)
        for worker in ready:
            if held := await self._fair(worker, _anything):
                await fault(worker)
                return held
        return []

    async def lose_checkpoints(self) -> int:
        """Delete the newest checkpoints, any number of them, of a run that is executing; how many went."""
        running = await self.running()
        if not running:
            return 0
        newest = self._dice.choice((1, 2, 5, None))
        deleted = await self._store.checkpoints.drop(self._dice.choice(running).ref, newest=newest)
        self.counts.checkpoints_deleted += deleted
        return deleted

    async def flush_broker(self) -> None:
        """Empty the stack's own broker: every wakeup in it is lost."""
        async with redis.asyncio.Redis.from_url(self._stack.broker_url) as client:
            await client.flushall()
        self.counts.broker_flushes += 1

    async def _try(self, worker: Child, may: MayKill) -> Kill | None:
        # Looked at twice: a worker that is only stopped loses its leases too if that takes long, so nobody is
        # stopped in vain; and what a stopped one holds cannot change between the look and the kill.
        if not await self._fair(worker, may):
            return None
        pid, killed_at = worker.pid, 0.0
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(self._longest_stop_seconds):
                await asyncio.sleep(IN_FLIGHT_SECONDS)
                held = await self._fair(worker, may)
            if held:
                await asyncio.to_thread(worker.kill)
                killed_at = time.time()
        except TimeoutError:
            held = []
        finally:
            if worker.running:
                os.kill(pid, signal.SIGCONT)
        if not held:
            return None
        await asyncio.to_thread(worker.start)
        self.counts.kills += 1
        self.counts.runs_hit += len(held)
        self.hits.update(run.ref.run_id for run in held)
        return Kill(worker.name, pid, tuple(held), killed_at)

    async def _fair(self, worker: Child, may: MayKill) -> list[Run]:
        """What a kill of the worker would hit; nothing when it would hit something too hard, or may not be."""
        held, unknown = await self._held_by(worker.pid)
        if not held or any(_last_crash(run) for run in (*held, *unknown)):
            return []
        return held if await may(held) else []

    async def _held_by(self, pid: int) -> tuple[list[Run], list[Run]]:
        """RUNNING runs of that process, and those of owners nobody has noted yet."""
        owners = self._notes.read()
        held: list[Run] = []
        unknown: list[Run] = []
        for run in await self.running():
            pids = owners.get(run.lease_owner) if run.lease_owner is not None else None
            if pids is None:
                unknown.append(run)
            elif pid in pids:
                held.append(run)
        return held, unknown

    async def running(self) -> list[Run]:
        """What is executing now, wherever."""
        return await self._store.runs.page(self._scope, statuses=[RunStatus.RUNNING], limit=MOST_RUNNING)


def _nobody_suspect(may: MayKill) -> MayKill:
    async def both(held: Sequence[Run]) -> bool:
        return not any(run.suspect for run in held) and await may(held)

    return both


def _ready(worker: Child) -> bool:
    """Whether it serves. Raises ChildDied for one that nobody killed and that is gone all the same."""
    try:
        worker.wait_ready(0.0)
    except Timeout:
        return False
    if not worker.running:
        raise ChildDied(f"{worker.name} ended by itself, with {worker.exit_code}")
    return True


def _last_crash(run: Run) -> bool:
    """Whether one more crash would use up its allowance."""
    return run.lease_expirations + 1 >= DEFAULT_MAX_ATTEMPTS

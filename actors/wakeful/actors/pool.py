"""The worker pool: claims runs into its slots and executes each as a task on one event loop."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

import structlog

from wakeful.actors.claiming import Claimer
from wakeful.actors.execution import Executes, ExecutesSuspects, SuspectDied, Ticks
from wakeful.actors.hand_back import OpenLog
from wakeful.actors.heartbeat import Heartbeat
from wakeful.actors.holdings import Holdings
from wakeful.actors.loop_watch import LoopWatch
from wakeful.actors.slots import Slots
from wakeful.domain.errors import WakefulError
from wakeful.domain.ids import new_id
from wakeful.domain.ports.leases import LeaseKeeper
from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS, RunQueue
from wakeful.domain.ports.sweeps import HOLDER_DEAD, ExpiredLease, RunSweeps
from wakeful.domain.runs import Claim, Lease
from wakeful.domain.states import PriorityClass
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

__all__ = ["Pool"]

POLLS_BETWEEN = {PriorityClass.INTERACTIVE: 1, PriorityClass.ASYNC: 4, PriorityClass.MAINTENANCE: 8}
"""How many interactive poll intervals lie between two looks at a class."""

_CANCEL_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class Pool:
    """`start()` is idempotent; `stop()` tolerates never started and twice, and returns when nothing runs any more.

    It works without any hint: it polls. Everything but `hint` is for the loop that started it. A pool is started
    once; its `owner` is one incarnation, and leases of another are never touched.
    """

    def __init__(
        self,
        *,
        queue: RunQueue,
        keeper: Callable[[], LeaseKeeper],
        executor: Executes,
        agents: Sequence[str],
        slots: Slots,
        ticker: Ticks,
        lease: timedelta,
        heartbeat: timedelta | None = None,
        poll: timedelta = timedelta(milliseconds=250),
        suspects: int = 8,
        suspect_runner: ExecutesSuspects | None = None,
        sweeps: RunSweeps | None = None,
        open_log: OpenLog | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> None:
        """`heartbeat` is a third of the lease unless given; `poll` is the interactive class's.

        Without `suspect_runner` suspects execute here like any run: for a store that only this process can see. With
        `sweeps` a suspect's death is taken to the queue at once, else when a scheduler's sweep finds it.
        """
        self.owner: UUID = new_id()
        self.slots = slots
        self._queue, self._keeper, self._executor, self._agents = queue, keeper, executor, tuple(agents)
        self._ticker, self._lease, self._interval, self._poll = ticker, lease, heartbeat or lease / 3, poll
        self._suspects, self._suspect_runner, self._sweeps = suspects, suspect_runner, sweeps
        self._open_log, self._max_attempts = open_log, max_attempts
        self._holdings = Holdings()
        self._tasks: set[asyncio.Task[None]] = set()
        self._suspects_running = 0
        self._draining = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def running(self) -> int:
        """How many runs are being executed."""
        return len(self._holdings)

    async def start(self) -> None:
        """Return when it claims. An unreachable database is waited for, not an error."""
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._watch = LoopWatch(self._loop)
        self._heartbeat = Heartbeat(
            owner=self.owner,
            keeper=self._keeper,
            holdings=self._holdings,
            watch=self._watch,
            loop=self._loop,
            lease=self._lease,
            interval=self._interval,
            adopt=self._adopt,
            open_log=self._open_log,
        )
        self._claimer = Claimer(
            self._queue,
            self.slots,
            owner=self.owner,
            agents=self._agents,
            lease=self._lease,
            free_suspects=lambda: max(0, self._suspects - self._suspects_running),
            take=self._take,
            max_attempts=self._max_attempts,
        )
        self._heartbeat.start()
        self._claimer.start()
        for priority in self.slots.classes:
            self._ticker.every(
                self._poll * POLLS_BETWEEN[priority], partial(self._look, priority), name=f"poll {priority.label}"
            )
        await self._ticker.start()

    def hint(self, priority: PriorityClass) -> None:
        """Look now; from any thread, never raises. Before `start` and after `drain` it does nothing."""
        if self._loop is not None and not self._draining:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._claimer.look, priority)

    async def drain(self, grace: timedelta) -> None:
        """Claim no more, ask every run to hand itself back, wait for them up to `grace`; the heartbeat goes last.

        Runs that have not let go by then are cancelled and keep their leases: they are crashes to whoever sweeps.
        """
        if self._loop is None or self._draining:
            return
        self._draining = True
        await self._ticker.stop()
        await self._claimer.stop()
        for holding in self._holdings.all():
            _ask_back(holding)
        end = self._loop.time() + grace.total_seconds()
        while self._tasks and (left := end - self._loop.time()) > 0:
            # Not once: a claim whose answer was lost may still be adopted, and is asked back then.
            await asyncio.wait(self._tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        await self._cancel_rest()
        if self._suspect_runner is not None:
            await self._suspect_runner.stop()
        await self._heartbeat.stop()

    async def stop(self) -> None:
        """Drain without any grace."""
        await self.drain(timedelta(0))

    async def _look(self, priority: PriorityClass) -> None:
        self._claimer.look(priority)

    def _take(self, claim: Claim, trusted_until: float) -> None:
        self._hold(Holding(claim, trusted_until=trusted_until))

    def _adopt(self, holding: Holding) -> None:
        if self._hold(holding):
            lease = holding.lease
            _log.warning("claim.adopted", run_id=str(lease.run.run_id), lease_epoch=lease.epoch)

    def _hold(self, holding: Holding) -> bool:
        alone = self._suspect_runner if holding.claim.suspect else None
        if not self._holdings.add(holding):
            return False
        if self._draining:
            _ask_back(holding)
        self.slots.take(holding.claim.priority)
        self._suspects_running += holding.claim.suspect
        task = asyncio.create_task(self._execute(holding, alone), name=f"run {holding.lease.run.run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _execute(self, holding: Holding, alone: ExecutesSuspects | None) -> None:
        ending: Ending | None = None
        self._watch.executing(holding.lease.run.run_id)
        try:
            if alone is None:
                ending = await self._executor.execute(holding)
            else:
                renewing = partial(self._holdings.renewed_elsewhere, holding)
                ending = await alone.execute(holding, renewing=renewing)
        except SuspectDied as died:
            await self._report_death(holding.lease, died.cause)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # SystemExit or KeyboardInterrupt out of a run must not end the loop, nor the neighbours with it. What it
            # is (memory used up, rows that cannot be read) may be gone elsewhere: a crash, and no failure yet.
            _log.exception("run.execution_broke", run_id=str(holding.lease.run.run_id))
            await self._report_death(holding.lease, f"raised {type(error).__name__}")
        finally:
            self._let_go(holding, ending)

    def _let_go(self, holding: Holding, ending: Ending | None) -> None:
        self._holdings.remove(holding, released=ending not in (None, Ending.ABANDONED))
        self.slots.release(holding.claim.priority)
        if holding.claim.suspect:
            self._suspects_running -= 1
            # Suspects may have been passed over in any class while no suspect slot was free.
            self._claimer.look(*self.slots.classes)
        self._claimer.freed()

    async def _report_death(self, lease: Lease, cause: str) -> None:
        run = lease.run
        _log.error("execution.died", run_id=str(run.run_id), lease_epoch=lease.epoch, cause=cause)
        if self._sweeps is None:
            return
        expired = ExpiredLease(run, lease.owner, lease.epoch)
        try:
            await self._sweeps.reclaim(expired, max_attempts=self._max_attempts, cause=cause, now=HOLDER_DEAD)
        except WakefulError as error:
            # Nothing is lost: the lease lapses by itself and a sweep finds it.
            _log.warning("suspect.death_unreported", run_id=str(run.run_id), error=error.code)

    async def _cancel_rest(self) -> None:
        rest = set(self._tasks)
        for task in rest:
            task.cancel()
        if rest:
            _log.warning("drain.incomplete", runs=len(rest))
            await asyncio.wait(rest, timeout=_CANCEL_SECONDS)


def _ask_back(holding: Holding) -> None:
    holding.draining = True
    holding.changed.set()

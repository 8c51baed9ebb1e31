"""The heartbeat: a thread and a connection of its own, so that a blocked event loop loses no lease."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

import structlog

from wakeful.actors.bell import Bell
from wakeful.actors.hand_back import OpenLog, hand_back
from wakeful.actors.holdings import Holdings
from wakeful.actors.loop_watch import LoopWatch
from wakeful.actors.outage import Outage
from wakeful.domain.ports.leases import Heartbeat as Answer
from wakeful.domain.ports.leases import LeaseKeeper
from wakeful.runtime.holding import Holding

__all__ = ["GIVE_UP_AFTER", "STUCK_AFTER", "Heartbeat"]

STUCK_AFTER = timedelta(minutes=5)
"""Without progress for this long, outside a declared wait, a run is no longer vouched for."""
GIVE_UP_AFTER = timedelta(seconds=30)
"""A loop that has not turned for this much longer does not come back: the process ends."""
EXIT_STUCK = 70

_RETRY_SECONDS = 0.25
"""After a failure. Until it connects again its owner counts as gone (`wakeful.domain.ports.presence`)."""
_GAP_SECONDS = 0.05
"""Between two heartbeats at least, however often it is called."""

_log = structlog.get_logger(__name__)


class Heartbeat:
    """Renews the leases of this process's holdings every `interval`, from `start` until `stop`.

    After an answer: `trusted_until` of what was renewed is the sending time plus the lease; what is lost or asked to
    cancel has its flag and its run is told. Claims nobody named (their answer was lost) are renewed and given to
    `adopt`, on the loop. Without an answer nothing changes but the time, and the next attempt comes at once. Between
    heartbeats it waits on its connection: called by a cancel, or cut off, it does not wait for the interval.

    It vouches for no run that made no progress for STUCK_AFTER. When one of them keeps the loop from turning for
    GIVE_UP_AFTER more, the neighbours are handed back and the process ends: nothing else can stop a blocked thread.
    """

    def __init__(
        self,
        *,
        owner: UUID,
        keeper: Callable[[], LeaseKeeper],
        holdings: Holdings,
        watch: LoopWatch,
        loop: asyncio.AbstractEventLoop,
        lease: timedelta,
        interval: timedelta,
        adopt: Callable[[Holding], None] | None,
        open_log: OpenLog | None = None,
        stuck_after: timedelta = STUCK_AFTER,
        give_up_after: timedelta = GIVE_UP_AFTER,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        """With `adopt` None the owner's other leases are somebody else's and left alone. Without `open_log` the
        neighbours of a stuck run are not handed back: their leases lapse."""
        self._owner, self._make_keeper, self._holdings, self._watch, self._loop = owner, keeper, holdings, watch, loop
        self._lease, self._lease_seconds, self._interval = lease, lease.total_seconds(), interval.total_seconds()
        self._adopt, self._open_log, self._exit = adopt, open_log, exit_process
        self._stuck, self._give_up = stuck_after.total_seconds(), give_up_after.total_seconds()
        self._keeper: LeaseKeeper | None = None
        self._stopping = False
        self._bell = Bell()
        self._outage = Outage("heartbeat")
        self._named_stuck: set[UUID] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """The first heartbeat goes out at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat_forever, name="heartbeat", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """Return when the thread has ended and its connection is closed. From then on leases run out."""
        if self._thread is not None:
            self._stopping = True
            self._bell.ring()
            await asyncio.to_thread(self._thread.join)
            self._thread = None
            self._bell.close()

    def _beat_forever(self) -> None:
        due = time.monotonic()
        while not self._stopping:
            if (left := due - time.monotonic()) <= 0:
                due = time.monotonic() + (self._interval if self._beat() else min(self._interval, _RETRY_SECONDS))
            elif self._called_within(left):
                due = min(due, time.monotonic() + _GAP_SECONDS)
        self._close()

    def _called_within(self, seconds: float) -> bool:
        try:
            if self._keeper is None:
                self._keeper = self._make_keeper()
            return self._keeper.wait(seconds, self._bell.descriptor)
        except Exception as error:
            self._outage.began(error)
            self._close()
            return True

    def _beat(self) -> bool:
        self._watch.ping()
        try:
            self._renew(self._vouched_for())
            self._outage.over()
        except Exception as error:
            # Whatever it was, this thread must not end: without it every run of the process is lost.
            # The keeper is kept: what is left of its connection still says that this process is there.
            self._outage.began(error)
            return False
        finally:
            if self._watch.blocked_seconds() > self._stuck + self._give_up:
                self._end_process()
        return True

    def _renew(self, vouched: Sequence[Holding]) -> None:
        answer, sent = self._ask(vouched)
        for holding in vouched:
            self._tell(holding, answer, sent)
        if self._adopt is None:
            return
        strangers = [Holding(claim, trusted_until=sent) for claim in self._holdings.unknown(answer.adopted)]
        if strangers:
            # Nothing is known of how long their leases still run, so they are renewed before they are executed.
            answer, sent = self._ask(strangers)
            for holding in strangers:
                if holding.lease.run.run_id in answer.renewed:
                    self._tell(holding, answer, sent)
                    self._call(partial(self._adopt, holding))

    def _ask(self, holdings: Sequence[Holding]) -> tuple[Answer, float]:
        if self._keeper is None:
            self._keeper = self._make_keeper()
        leases = [holding.lease for holding in holdings]
        # Before sending: a slow answer must shorten the trust, never stretch it.
        sent = time.monotonic()
        return self._keeper.heartbeat(self._owner, leases, lease=self._lease), sent

    def _tell(self, holding: Holding, answer: Answer, sent: float) -> None:
        run_id = holding.lease.run.run_id
        if run_id in answer.renewed:
            holding.trusted_until = sent + self._lease_seconds
        lost = run_id in answer.lost and not holding.lost
        cancelled = run_id in answer.cancel_requested and not holding.cancel_requested
        holding.lost = holding.lost or lost
        holding.cancel_requested = holding.cancel_requested or cancelled
        if lost or cancelled:
            self._call(holding.changed.set)

    def _vouched_for(self) -> list[Holding]:
        candidates = self._holdings.to_renew()
        stuck = self._stuck_runs(candidates)
        for run_id in stuck - self._named_stuck:
            _log.error("run.stuck", run_id=str(run_id), seconds=self._stuck)
        self._named_stuck = stuck
        return [holding for holding in candidates if holding.lease.run.run_id not in stuck]

    def _stuck_runs(self, candidates: Sequence[Holding]) -> set[UUID]:
        if self._watch.blocked_seconds() > self._stuck:
            # Nobody makes progress now; only the one whose task is executing is to blame.
            run_id = self._watch.blocking_run()
            return set() if run_id is None else {run_id}
        since = time.monotonic() - self._stuck
        return {
            holding.lease.run.run_id
            for holding in candidates
            if not holding.declared_wait and max(holding.last_progress, self._watch.unblocked_at) < since
        }

    def _end_process(self) -> None:
        run_id = self._watch.blocking_run()
        neighbours = [h for h in self._holdings.to_renew() if h.lease.run.run_id != run_id and h.unrepeatable == 0]
        for holding in neighbours:
            holding.lost = True  # should the loop turn after all, it must not go on with what is given away
        handed = 0
        if self._open_log is not None:
            with contextlib.suppress(Exception):
                handed = asyncio.run(hand_back(self._open_log, [holding.lease for holding in neighbours]))
        _log.critical("worker.stuck", run_id=str(run_id), neighbours=len(neighbours), handed_back=handed)
        self._exit(EXIT_STUCK)

    def _call(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(function)

    def _close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            with contextlib.suppress(Exception):
                keeper.close()

"""Putting conversations through: sessions side by side, the runs of one session one after the other."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from wakeful.client.backend import surely
from wakeful.domain.errors import Timeout, Unavailable
from wakeful.domain.ids import derived_id
from wakeful.domain.ports.run_queue import RunQueue
from wakeful.domain.ports.sessions import RunReader, Sessions
from wakeful.domain.ports.wakeups import Wakeups
from wakeful.domain.runs import Budget, Run, Submission
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import TERMINAL_RUNS, PriorityClass, RunStatus
from wakeful.faults.replay.plan import Conversation
from wakeful.faults.replay.workload import AGENT
from wakeful.models.replay import RECORDING

__all__ = ["SCOPE", "Outcome", "Submitter", "SubmitterStore"]

SCOPE = Scope(derived_id("tenant", "replay"), derived_id("principal", "replay"))
LIVE = [status for status in RunStatus if status not in TERMINAL_RUNS]
LOOK_SECONDS = 0.05
AT_ONCE = 4
"""Statements of ours at a time: a connection pool serves few, and refuses those that wait too long."""
PAGE = 1000
UNLIMITED = Budget(max_steps=None)
"""Recordings were bounded by whoever made them."""


class SubmitterStore(Protocol):
    @property
    def queue(self) -> RunQueue: ...
    @property
    def runs(self) -> RunReader: ...
    @property
    def sessions(self) -> Sessions: ...


@dataclass(slots=True)
class Outcome:
    """How a conversation went; `stopped` says why its remaining runs were not submitted."""

    conversation: Conversation
    runs: list[Run] = field(default_factory=list)
    stopped: str | None = None


class Submitter:
    """Submits and waits. One look at the live runs serves every waiting session, so waiting stays cheap."""

    def __init__(
        self, store: SubmitterStore, wakeups: Wakeups, *, stall_seconds: float, on_run: Callable[[Run], None]
    ) -> None:
        """`on_run` is told of every run that ended. Without any run moving for `stall_seconds` it gives up."""
        self._store, self._wakeups = store, wakeups
        self._stall_seconds, self._on_run = stall_seconds, on_run
        self._waiting: dict[UUID, asyncio.Future[None]] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def submit_all(self, conversations: Iterable[Conversation]) -> list[Outcome]:
        """Every conversation, in the order given. Raises Timeout when nothing moves any more."""
        watcher = asyncio.create_task(self._watch())
        tasks = [asyncio.create_task(self._converse(each)) for each in conversations]
        try:
            return await _all_or(watcher, tasks)
        finally:
            for task in (watcher, *tasks):
                task.cancel()
            await asyncio.gather(watcher, *tasks, return_exceptions=True)

    async def _converse(self, conversation: Conversation) -> Outcome:
        outcome = Outcome(conversation)
        session = NewSession(SCOPE, AGENT, title=conversation.recording.id[:200], session_id=conversation.session_id)
        async with self._gate:
            await surely(lambda: self._store.sessions.create(session))
        for run_id, recorded, _ in conversation.runs():
            submission = Submission(
                scope=SCOPE,
                session_id=conversation.session_id,
                agent=AGENT,
                agent_version=1,
                messages=tuple(recorded.messages),
                priority=PriorityClass.ASYNC,
                budget=UNLIMITED,
                metadata={RECORDING: conversation.recording.id},
                run_id=run_id,
            )
            run = await self._run(submission)
            outcome.runs.append(run)
            self._on_run(run)
            if run.status is not RunStatus.COMPLETED:
                outcome.stopped = f"run {len(outcome.runs)} ended as {run.status} ({_why(run)})"
                break
        return outcome

    async def _run(self, submission: Submission) -> Run:
        async with self._gate:
            await surely(lambda: self._store.queue.submit(submission))
        self._wakeups.wake(submission.priority)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[submission.run_id] = ended
        try:
            await ended
        finally:
            del self._waiting[submission.run_id]
        async with self._gate:
            return await self._store.runs.get(SCOPE, submission.run_id)

    async def _watch(self) -> None:
        seen, moved, took = None, time.monotonic(), 0.0
        while time.monotonic() - moved < self._stall_seconds:
            # Looking costs the database something, the more runs there are the more: a fifth of the time at most.
            await asyncio.sleep(max(LOOK_SECONDS, 4 * took))
            began = time.monotonic()
            # Taken before the look: a run submitted after it may be missing there and be alive.
            waiting = dict(self._waiting)
            try:
                live = await self._live()
            except Unavailable:
                continue  # The next look is soon; whoever waits loses nothing.
            took = time.monotonic() - began
            alive = {run.ref.run_id for run in live}
            for run_id, future in waiting.items():
                if run_id not in alive and not future.done():
                    future.set_result(None)
            now = {(run.ref.run_id, run.status, run.step, run.lease_epoch) for run in live}
            if now != seen:
                seen, moved = now, time.monotonic()
        raise Timeout(f"no run moved for {self._stall_seconds:g} s: {len(seen or ())} are not finished")

    async def _live(self) -> list[Run]:
        live: list[Run] = []
        before: UUID | None = None
        while page := await self._store.runs.page(SCOPE, statuses=LIVE, limit=PAGE, before=before):
            live += page
            if len(page) < PAGE:
                break
            before = page[-1].ref.run_id
        return live


def _why(run: Run) -> str:
    """The failure's code and, for a run that crashed too often, how each execution ended."""
    code = run.failure.code if run.failure else "no failure stored"
    causes = ", ".join(str(attempt.get("reason", attempt)) for attempt in run.attempt_failures)
    return f"{code}: {causes}" if causes else code


async def _all_or(watcher: "asyncio.Task[None]", tasks: "list[asyncio.Task[Outcome]]") -> list[Outcome]:
    """Every outcome; the first error of a task, or the watcher's, ends the waiting."""
    everything = asyncio.gather(*tasks)
    either: set[asyncio.Future[Any]] = {watcher, everything}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not everything.done():
        everything.cancel()
        await asyncio.gather(everything, return_exceptions=True)
        watcher.result()
    return await everything

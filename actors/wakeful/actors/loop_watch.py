"""Seeing from another thread whether an event loop turns, and which run keeps it from turning."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

__all__ = ["LoopWatch"]

T = TypeVar("T")

_BLOCKED_SECONDS = 1.0


class LoopWatch:
    """Knows the loop's last turn as far as it was asked for by `ping`, and the run of every task.

    A tool blocks the loop from a task of its own; that task inherits the context in which its run is executed, and
    this installs a task factory that notes it, unless the loop has a factory already.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._run: ContextVar[UUID | None] = ContextVar("wakeful_run", default=None)
        self._runs: WeakKeyDictionary[asyncio.Future[Any], UUID] = WeakKeyDictionary()
        self._asked: float | None = None
        self.unblocked_at = time.monotonic()
        """When the loop last turned again after a second or more: before that nobody could make progress."""
        if loop.get_task_factory() is None:
            loop.set_task_factory(self._make_task)

    def executing(self, run_id: UUID) -> None:
        """Called by the task that executes the run: it and every task it starts belong to that run."""
        self._run.set(run_id)
        if (task := asyncio.current_task()) is not None:
            self._runs[task] = run_id

    def ping(self) -> None:
        """Ask for a turn; from any thread."""
        if self._asked is None:
            self._asked = time.monotonic()
            with contextlib.suppress(RuntimeError):  # the loop is closed: it never turns again
                self._loop.call_soon_threadsafe(self._turned)

    def blocked_seconds(self) -> float:
        """How long the oldest ping has been waiting; 0 without one."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    def blocking_run(self) -> UUID | None:
        """The run whose task is executing at this moment; None when that belongs to no run."""
        task = asyncio.current_task(self._loop)
        return None if task is None else self._runs.get(task)

    def _turned(self) -> None:
        if self.blocked_seconds() > _BLOCKED_SECONDS:
            self.unblocked_at = time.monotonic()
        self._asked = None

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any
    ) -> "asyncio.Future[T]":
        task: asyncio.Task[T] = asyncio.Task(coro, loop=loop, **options)
        context = options.get("context")
        run_id = self._run.get() if context is None else context.get(self._run)
        if run_id is not None:
            self._runs[task] = run_id
        return task

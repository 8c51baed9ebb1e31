"""A worker pool inside a process that the Dramatiq command runs."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import dramatiq
import structlog

from wakeful.actors.queues import classes_of, wake_queue
from wakeful.actors.wake import Hintable, hints_of
from wakeful.domain.errors import ConfigurationError, Unavailable, WakefulError
from wakeful.domain.states import PriorityClass

__all__ = ["EXIT_UNREACHABLE", "EXIT_UNUSABLE", "PoolProcess", "Service"]

T = TypeVar("T")

EXIT_UNUSABLE, EXIT_UNREACHABLE = 2, 3
"""What the Dramatiq command itself exits with for its arguments and for its broker."""

_log = structlog.get_logger(__name__)


class Service(Hintable, Protocol):
    async def start(self) -> None: ...

    async def drain(self, grace: timedelta | None = None) -> None: ...

    async def stop(self) -> None: ...


class PoolProcess(dramatiq.Middleware):
    """Starts the service when the worker boots, on a loop in a thread of its own, and drains it before the worker
    shuts down. Its classes are those of the queues that the command listens to (`-Q`).

    Nothing happens before the worker boots, so nothing is carried through a fork. A service that does not start ends
    the process: consuming without a pool would look alive and do nothing.
    """

    def __init__(self, make: Callable[[frozenset[PriorityClass]], Service]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: Service | None = None

    def before_worker_boot(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a second SIGTERM ends the main thread, and must not wait for a drain.
        threading.Thread(target=self._loop.run_forever, name="pool", daemon=True).start()
        try:
            self._service = self._call(self._start(worker.consumer_whitelist))
        except WakefulError as error:
            # Dramatiq would log any other exception and go on.
            _log.error("worker.not_started", error=str(error))
            raise SystemExit(EXIT_UNREACHABLE if isinstance(error, Unavailable) else EXIT_UNUSABLE) from None
        if (hints := hints_of(broker)) is not None:
            hints.attach(self._service)

    def before_worker_shutdown(self, broker: dramatiq.Broker, worker: dramatiq.Worker) -> None:
        """Blocks for the drain; the consumers still run meanwhile, and their hints are dropped."""
        service, self._service = self._service, None
        if service is None:
            return
        if (hints := hints_of(broker)) is not None:
            hints.detach()
        self._call(_finish(service))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def _start(self, queues: set[str] | None) -> Service:
        classes = classes_of(queues or None)
        if not classes:
            raise ConfigurationError(
                f"-Q names no wake queue: use one of {', '.join(wake_queue(priority) for priority in PriorityClass)}"
            )
        service = self._make(classes)
        await service.start()
        return service

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None  # noqa: S101 - the boot made it
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _finish(service: Service) -> None:
    try:
        await service.drain()
    finally:
        await service.stop()

"""Wakeups over a broker: given in no time, sent by a thread, dropped when the broker does not take them."""

import os
import threading
import time

import dramatiq
import structlog

from wakeful.actors.queues import MESSAGE_MAX_AGE_MS, actor_name, wake_queue
from wakeful.domain.states import PriorityClass

__all__ = ["BrokerWakeups"]

_log = structlog.get_logger(__name__)

_GAP_SECONDS = 0.002
"""Between two rounds of sending: a burst of submits is one message per class and round."""
_AFTER_FAILURE_SECONDS = 1.0
_LOG_EVERY_SECONDS = 60.0


class BrokerWakeups:
    """Implements `wakeful.domain.ports.wakeups.Wakeups`.

    Hints given while one of their class waits to be sent are that one. A broker that is down costs the callers
    nothing: what cannot be sent is dropped, with one log line a minute. Works after a fork.
    """

    def __init__(self, broker: dramatiq.Broker) -> None:
        """Nothing is connected; the thread starts with the first hint."""
        self._broker = broker
        self._thread: threading.Thread | None = None
        self._pending: set[PriorityClass] = set()
        self._reset()

    def wake(self, priority: PriorityClass) -> None:
        """Return at once, whatever the broker does; never raises. After `close` hints are dropped."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._closed:
                return
            self._pending.add(priority)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_forever, name="wakeups", daemon=True)
                self._thread.start()
        self._given.set()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Send what waits, for at most `timeout_seconds`, and end the thread. Twice changes nothing."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        self._given.set()
        self._ended.set()
        if thread is not None:
            thread.join(timeout_seconds)

    def _reset(self) -> None:
        # A forked child has the parent's fields but not its thread, and perhaps its lock in mid-hold.
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._given, self._ended = threading.Event(), threading.Event()
        self._pending, self._thread = set(), None
        self._closed = False
        self._dropped, self._logged_at = 0, float("-inf")

    def _send_forever(self) -> None:
        while True:
            self._given.wait()
            self._given.clear()
            closed = self._closed
            with self._lock:
                classes, self._pending = sorted(self._pending), set()
            failed = [priority for priority in classes if not self._send(priority)]
            if closed:
                return
            self._ended.wait(_AFTER_FAILURE_SECONDS if failed else _GAP_SECONDS)

    def _send(self, priority: PriorityClass) -> bool:
        message: dramatiq.Message[None] = dramatiq.Message(
            queue_name=wake_queue(priority),
            actor_name=actor_name(priority),
            args=(),
            kwargs={},
            options={"max_age": MESSAGE_MAX_AGE_MS},
        )
        try:
            self._broker.enqueue(message)
        except Exception as error:
            self._drop(error)
            return False
        return True

    def _drop(self, error: Exception) -> None:
        """The class of the error only: its text may hold an address."""
        self._dropped += 1
        if time.monotonic() - self._logged_at >= _LOG_EVERY_SECONDS:
            _log.warning("wakeups.dropped", error=type(error).__name__, dropped=self._dropped)
            self._dropped, self._logged_at = 0, time.monotonic()

"""Worker and scheduler processes of a stack: started, known to be ready, killed, restarted, by handle only.

A child is killed by the kernel when its owner dies, whatever ended that, and whatever the child does or cannot do
just then. It also is told the read end of an owner pipe (`--owner-fd`): at its end of file it stops as on SIGTERM,
for systems without that service of the kernel, and should the owner be gone before it was asked for. It reports
readiness by one line on another pipe (`--ready-fd`), which the kernel closes should the child die first.
"""

import contextlib
import functools
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs

from wakeful.actors.parent import die_with_parent
from wakeful.domain.errors import Timeout, WakefulError

__all__ = ["Child", "ChildDied", "report_ready", "watch_owner"]

_Spawn = Callable[[], "subprocess.Popen[bytes]"]

READY_SECONDS = 60.0
# A draining worker gives its calls the grace of its settings (25 s) before it ends by itself.
STOP_SECONDS = 40.0


class ChildDied(WakefulError):
    """A process of the stack ended before it was ready; the message ends with its last words."""

    code = "child_died"


class Child:
    """One process of a stack, `wakeful worker …` or `wakeful scheduler`. Not safe for several threads at once."""

    def __init__(self, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path, name: str) -> None:
        """Nothing is started. `environment` is added to ours; `log` is appended to."""
        self.name = name
        self.log = log
        self._arguments = list(arguments)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: int | None = None
        self._owner: int | None = None
        self.facts: dict[str, Any] = {}
        """What the process said of itself when it was ready (`pid`, for a worker also `agents`)."""

    @property
    def pid(self) -> int:
        """Of the latest start; 0 before the first."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it if it does not run; does not wait until it is ready."""
        if self.running:
            return
        self._close_pipes()
        ready_read, ready_write = os.pipe()
        owner_read, owner_write = os.pipe()
        options = ["--ready-fd", str(ready_write), "--owner-fd", str(owner_read)]
        with self.log.open("ab") as log:
            self._process = _spawned(
                [sys.executable, "-m", "wakeful", *self._arguments, *options],
                environment=_environment(self._environment),
                log=log,
                pass_fds=(ready_write, owner_read),
            )
        os.close(ready_write)
        os.close(owner_read)
        self._ready, self._owner = ready_read, owner_write

    def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Return when the process serves. Raises ChildDied, or Timeout (it is left running)."""
        if self._ready is None:
            return
        deadline = time.monotonic() + timeout_seconds
        said = b""
        while not said.endswith(b"\n"):
            readable, _, _ = select.select([self._ready], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise Timeout(f"{self.name} was not ready in {timeout_seconds:g} s (log: {self.log})")
            part = os.read(self._ready, 4096)
            if not part:
                code = self._process.wait() if self._process else None
                raise ChildDied(f"{self.name} ended with {code} before it was ready:\n{_last_lines(self.log)}")
            said += part
        self.facts = json.loads(said)
        os.close(self._ready)
        self._ready = None

    def kill(self) -> int:
        """SIGKILL, and return the pid when the process is gone: what a crash looks like."""
        pid = self.pid
        self._signal(signal.SIGKILL)
        self._reap(None)
        return pid

    def restart(self) -> None:
        """Kill what runs and start anew, under a new pid."""
        self.kill()
        self.start()

    def terminate(self) -> None:
        """Ask it to drain and end, without waiting."""
        self._signal(signal.SIGTERM)

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """SIGTERM, then SIGKILL when the time is over; on return nothing runs. Twice changes nothing."""
        self.terminate()
        try:
            self._reap(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _reap(self, timeout_seconds: float | None) -> None:
        if self._process is not None:
            self._process.wait(timeout_seconds)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for descriptor in (self._ready, self._owner):
            if descriptor is not None:
                os.close(descriptor)
        self._ready = self._owner = None


def report_ready(descriptor: int | None, **facts: Any) -> None:
    """The child's side: say that it serves. An owner that is gone does not need to know."""
    if descriptor is None:
        return
    with contextlib.suppress(OSError):
        os.write(descriptor, json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n")
        os.close(descriptor)


def watch_owner(descriptor: int | None) -> None:
    """The child's side: end with the owner, at the latest with SIGTERM when its end of the pipe is closed."""
    if descriptor is None:
        return
    # Before the pipe is read: an owner that died before this is seen there.
    die_with_parent()
    # Our own children must not inherit it; nobody but the owner holds the other end.
    os.set_inheritable(descriptor, False)

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(descriptor, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="owner-watch", daemon=True).start()


def _spawned(
    command: Sequence[str], *, environment: Mapping[str, str], log: BinaryIO, pass_fds: Sequence[int]
) -> "subprocess.Popen[bytes]":
    """Spawned by a thread that ends only with this process: a child dies with the thread that forked it."""

    def spawn() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=pass_fds,
            # A terminal's Ctrl-C belongs to the owner, which stops its children in its own order.
            start_new_session=True,
        )

    made: Future[subprocess.Popen[bytes]] = Future()
    _nursery().put((spawn, made))
    return made.result()


@functools.cache
def _nursery() -> "queue.SimpleQueue[tuple[_Spawn, Future[subprocess.Popen[bytes]]]]":
    orders: queue.SimpleQueue[tuple[_Spawn, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            spawn, made = orders.get()
            try:
                made.set_result(spawn())
            except BaseException as error:
                made.set_exception(error)

    threading.Thread(target=work, name="nursery", daemon=True).start()
    return orders


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    # Ours without our settings: the stack's servers are not what our own settings speak of.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WAKEFUL_")}
    if sys.dont_write_bytecode:
        # No bytecode beside the sources, as was asked for; but a stack starts the same modules many times, and a
        # worker that was killed is waited for. Compiling them costs seconds, loading them a few tenths.
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        kept["PYTHONPYCACHEPREFIX"] = str(platformdirs.user_cache_path("wakeful") / "bytecode")
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


def _last_lines(log: Path, count: int = 15) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-count:]) or "(it said nothing)"

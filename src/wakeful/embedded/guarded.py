"""The owner's side of a guarded server process (the other side is `guardian.py`)."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wakeful.embedded.account import Account, clean_environment
from wakeful.embedded.errors import EmbeddedStartFailed

__all__ = ["GuardedProcess", "Orders", "last_lines"]

# How long a server whose guardian was killed may take for the shutdown that the kernel asked it for.
ORPHAN_SECONDS = 60.0


@dataclass(frozen=True)
class Orders:
    """What the guardian runs and how it ends it: (signal, grace in seconds) in turn."""

    command: Sequence[str]
    account: Account
    working_directory: Path
    log: Path
    stop: Sequence[tuple[int, float]]
    remove: Sequence[Path]

    def as_json(self) -> bytes:
        switched = self.account.switched
        identity = {"user": self.account.uid, "group": self.account.gid, "extra_groups": []} if switched else {}
        return json.dumps(
            {
                "command": list(self.command),
                "cwd": str(self.working_directory),
                "env": clean_environment(),
                "identity": identity,
                "log": str(self.log),
                "stop": [[int(number), grace] for number, grace in self.stop],
                "remove": [str(path) for path in self.remove],
            }
        ).encode()


class GuardedProcess:
    """A running server whose life ends with this process, also after SIGKILL.

    A forked child of the owner neither keeps the server alive nor can stop it.
    """

    def __init__(self, orders: Orders, *, keep_open: Sequence[int] = ()) -> None:
        """Start it; EmbeddedStartFailed when the program cannot be executed."""
        self.pid = 0
        script = Path(__file__).with_name("guardian.py")
        self._owner = os.getpid()
        self._remove = orders.remove
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            pass_fds=keep_open,
            start_new_session=True,
        )
        _living.add(self)
        self._say(orders.as_json() + b"\n")
        word, _, rest = self._hear().partition(" ")
        if word != "started":
            self.stop()
            raise EmbeddedStartFailed(f"cannot execute {orders.command[0]}: {rest or 'the guardian died'}")
        self.pid = int(rest)

    @property
    def running(self) -> bool:
        """Whether the server has not ended by itself."""
        if self._guardian.stdout is None or self._guardian.stdout.closed:
            return False
        ended, _, _ = select.select([self._guardian.stdout], [], [], 0)
        return not ended

    def stop(self, *, keep: bool = False, immediate: bool = False) -> None:
        """Let go, and return when neither the server nor its guardian runs.

        The temporary folders are gone then, unless `keep`. With `immediate` the server ends as in a crash.
        """
        if self._owner != os.getpid():
            return
        words = " ".join(word for word, said in (("keep", keep), ("immediate", immediate)) if said)
        self.let_go(words)
        if self._guardian.wait() < 0:
            self._after_killed_guardian(keep=keep)
        if self._guardian.stdout is not None:
            self._guardian.stdout.close()

    def _after_killed_guardian(self, *, keep: bool) -> None:
        """The kernel told the server to stop when somebody killed its guardian; the rest is left to us."""
        deadline = time.monotonic() + ORPHAN_SECONDS
        while _exists(self.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        for folder in () if keep else self._remove:
            shutil.rmtree(folder, ignore_errors=True)

    def let_go(self, words: str = "") -> None:
        """Close our end of the pipe: all that the death of this process would do."""
        self._say(words.encode())
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()

    def _say(self, words: bytes) -> None:
        # Unbuffered: a forked child that closes its copy must not write ours once more.
        # A guardian that is gone already has nothing left to hear.
        with contextlib.suppress(BrokenPipeError):
            if self._guardian.stdin is not None and not self._guardian.stdin.closed:
                self._guardian.stdin.write(words)

    def _hear(self) -> str:
        line = self._guardian.stdout.readline() if self._guardian.stdout is not None else b""
        return line.decode(errors="replace").strip()


_living: "weakref.WeakSet[GuardedProcess]" = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked child has copies of the pipes; were they left open, the server would outlive its owner.
    for process in list(_living):
        process.let_go()


os.register_at_fork(after_in_child=_forget_in_child)


def _exists(pid: int) -> bool:
    if pid == 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def last_lines(log: Path, *, count: int = 12) -> str:
    """The end of a log, for an error message."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return "\n".join(lines[-count:]) or "(the log is empty)"

"""The parent of one embedded server: it ends the server when the owner is gone, whatever ended the owner.

Run as a script by `wakeful.embedded.guarded`, standard library only. Standard input is a pipe whose other
end only the owner holds: the kernel closes it when the owner dies, SIGKILL included. That end of file is also
how an orderly stop is asked for, so the crash path is the path that every stop takes. Being the server's
parent, the guardian can signal it without ever meeting a reused process id.

Two words may come down the pipe before its end: `keep` (leave the temporary folders, the owner will start
again in them) and `immediate` (end the server as a crash would).
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any

# From <linux/prctl.h>.
PR_SET_PDEATHSIG = 1


def main() -> int:
    # A terminal's Ctrl-C belongs to the owner, which stops its servers in its own order.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    orders: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    try:
        server = start(orders)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        tell(f"failed {error}")
        remove(orders["remove"])
        return 1
    tell(f"started {server.pid}")
    words = owner_words(server)
    stages = orders["stop"]
    code = end(server, stages[1:] if "immediate" in words else stages)
    if "keep" not in words:
        remove(orders["remove"])
    return code


def start(orders: dict[str, Any]) -> "subprocess.Popen[bytes]":
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    first_signal = orders["stop"][0][0]

    def die_with_guardian() -> None:
        # Changing the user clears this setting, so it is made here, after the change: the last line of
        # defence should somebody SIGKILL the guardian itself.
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, first_signal)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    log = os.open(orders["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    # Our own last words, should there be any, belong beside the server's.
    os.dup2(log, sys.stderr.fileno())
    return subprocess.Popen(
        orders["command"],
        cwd=orders["cwd"],
        env=orders["env"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        umask=0o077,
        preexec_fn=die_with_guardian,  # noqa: PLW1509 - no other thread runs yet
        **orders["identity"],
    )


def tell(line: str) -> None:
    """The owner may be gone already; then nobody needs to know."""
    with contextlib.suppress(OSError):
        sys.stdout.write(line.replace("\n", " ") + "\n")
        sys.stdout.flush()


def owner_words(server: subprocess.Popen[bytes]) -> list[str]:
    """Return what the owner said when it let go, or when we are told to terminate.

    A server that ends by itself is reported, and its log stays until the owner has read it.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(writing)

    def watch() -> None:
        server.wait()
        tell(f"ended {server.returncode}")

    threading.Thread(target=watch, daemon=True).start()
    said = b""
    owner = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([owner, reading], [], [])
        part = b"" if reading in ready else os.read(owner, 4096)
        if not part:
            return said.decode(errors="replace").split()
        said += part


def end(server: "subprocess.Popen[bytes]", stages: list[list[float]]) -> int:
    """Send each signal in turn, giving its grace in seconds; the last one is SIGKILL."""
    for number, grace_seconds in stages:
        if server.poll() is None:
            server.send_signal(int(number))
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=grace_seconds)
            break
    return 0 if server.wait() == 0 else 1


def remove(folders: list[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

"""The fork server of suspects, a child of the worker.

It has imported what every suspect needs and forks one process per suspect, in milliseconds and from a process that has
neither threads nor connections; a worker has both, and forking it would copy locks in mid-hold. So the server is forked
off the worker before that has any (`fork_server`), or started anew (`python -m wakeful.actors.suspect_forks`). It tells
the worker how each child ended. When the worker is gone, whatever ended it, the control socket ends, this process kills
its children and ends; should it be killed itself, the kernel kills them (PR_SET_PDEATHSIG).
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from typing import NoReturn

from wakeful.actors.suspect_orders import decode, encode

__all__ = ["ForkServer", "ForkedServer", "fork_server", "main"]

_LINE_BYTES = 65_536


class ForkServer:
    """Answers `{"start": n}` (with the child's end of a socket) and `{"kill": n}`; says `{"ended": n, "status": s}`
    with s the exit code, or minus the signal."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        self._descriptors: list[int] = []
        self._received = b""
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def serve(self) -> None:
        """Return when the worker has closed its end; no child is left then."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the worker decides
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        try:
            while self._turn():
                pass
        finally:
            for pid in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _turn(self) -> bool:
        ready = {key.fd for key, _ in self._selector.select()}
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
            self._reap()
        return self._control.fileno() not in ready or self._listen()

    def _listen(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _LINE_BYTES, 16)
        except ConnectionError:
            return False  # the worker was killed with something of ours unread
        if not data:
            return False
        self._descriptors.extend(descriptors)
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message = decode(line)
            if "start" in message:
                # Descriptors arrive in the order of the messages they came with.
                self._start(message["start"], self._descriptors.pop(0))
            else:
                self._kill(message["kill"])
        return True

    def _start(self, number: int, descriptor: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_child(descriptor)
        os.close(descriptor)
        self._children[pid] = number

    def _become_child(self, descriptor: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._selector.close()
            self._control.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            from wakeful.actors.suspect_child import run_child

            code = run_child(socket.socket(fileno=descriptor))
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # never back into the server's frames

    def _kill(self, number: int) -> None:
        for pid, child in self._children.items():
            if child == number:
                # Not reaped yet, so the pid is still this child's.
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ended = {"ended": self._children.pop(pid), "status": os.waitstatus_to_exitcode(status)}
                with contextlib.suppress(OSError):  # a worker that is gone is seen by the next turn
                    self._control.sendall(encode(ended))


@dataclass(frozen=True, slots=True)
class ForkedServer:
    """A fork server beside this process, and our end of its control socket. Closing that ends it."""

    pid: int
    control: socket.socket = field(repr=False)


def fork_server() -> ForkedServer:
    """Fork the server off this process, which must have neither threads nor connections yet, nor a team's code: that is
    loaded by each suspect anew. What was imported is shared between all of them."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            os.setpgid(0, 0)  # a terminal's Ctrl-C is for the worker, which drains
            _serve(theirs)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)  # never back into the worker's frames
    theirs.close()
    return ForkedServer(pid, ours)


def _serve(control: socket.socket) -> None:
    # Shared with every child for as long as nobody writes to it, and a collection would.
    gc.freeze()
    gc.enable()
    ForkServer(control).serve()


def main(descriptor: int, path: list[str], preload: list[str]) -> None:
    """`path` is the worker's `sys.path`: what it could import, its suspects can."""
    sys.path[:] = path
    control = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    for module in ("wakeful.actors.suspect_child", *preload):
        importlib.import_module(module)
    _serve(control)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])

"""Counting the places where a process may die, and dying at one of them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from wakeful.faults.crashes.experiments import Crash, When

__all__ = ["HERE", "Points"]


class Points:
    """The points one process passes. Each is written to `report` when it is reached, and the death before it comes."""

    def __init__(self) -> None:
        self._crash: Crash | None = None
        self._report: int | None = None
        self._passed = 0
        self._quiet = 0

    def arm(self, crash: Crash | None, report: int) -> None:
        """Count from now on, and die at `crash`."""
        self._crash, self._report, self._passed = crash, report, 0

    def disarm(self) -> None:
        self._report = None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What the harness itself does in the block is no point."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    @contextmanager
    def point(self, label: str) -> Iterator[None]:
        """One statement or effect; nothing but that happens in the block."""
        if self._report is None or self._quiet:
            yield
            return
        self._passed += 1
        number = self._passed
        self._say(f"point {number} {label}")
        self._die_if(number, "before")
        yield
        self._die_if(number, "after")

    def _die_if(self, number: int, when: When) -> None:
        if self._crash is not None and (self._crash.point, self._crash.when) == (number, when):
            self._say(f"killed {number}")
            os.kill(os.getpid(), signal.SIGKILL)

    def _say(self, line: str) -> None:
        if self._report is not None:
            os.write(self._report, line.encode() + b"\n")


HERE = Points()
"""This process's points: the hooks below the driver and the tools of the shapes share them."""

"""The owner's side of the process in which executors are forked."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from wakeful.domain.errors import WakefulError
from wakeful.faults.crashes.orders import Order, Passage, encode_order

__all__ = ["Host"]


class Host:
    """Carries out orders one after another, each in a process of its own. Ends with its owner."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None

    def carry_out(self, order: Order) -> Passage:
        """Fork an executor, wait for its end, and say what became of it. Raises WakefulError when the host died."""
        process = self._running()
        if process.stdin is None or process.stdout is None:
            raise WakefulError("the crash host has no pipes")
        process.stdin.write(encode_order(order) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise WakefulError(f"the crash host ended with {process.wait()}: see its error output above")
        return _passage(json.loads(line))

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wakeful.faults.crashes.host"],
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._process


def _passage(answer: dict[str, object]) -> Passage:
    lines = answer["lines"]
    if not isinstance(lines, list):
        raise WakefulError("the crash host spoke nonsense")
    points = tuple(line.split(" ", 2)[2] for line in lines if line.startswith("point "))
    killed = any(line.startswith("killed ") for line in lines) and answer["exit"] == -signal.SIGKILL
    error = next(
        (line.removeprefix("error ").replace("\\n", "\n") for line in lines if line.startswith("error ")), None
    )
    if error is None and not killed and answer["exit"] != 0:
        error = f"it ended with {answer['exit']}"
    return Passage(points, killed, error)

"""Where executors are forked: `python -m wakeful.faults.crashes.host`.

It has imported everything and holds neither threads nor connections, so a fork costs milliseconds. One order a line
on standard input, one passage a line on standard output; it ends when its input does.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable

from wakeful.bootstrap.apps import load_app
from wakeful.faults.crashes.executing import execute
from wakeful.faults.crashes.orders import Order, decode_order
from wakeful.faults.crashes.points import HERE
from wakeful.faults.crashes.statements import watch_statements

__all__ = ["main"]


def main() -> None:
    watch_statements(HERE)
    for line in sys.stdin:
        order = decode_order(line)
        reading, writing = os.pipe()
        code = _in_a_fork(order, writing) if order.forked else _here(order, writing)
        with os.fdopen(reading, encoding="utf-8", errors="replace") as report:
            lines = report.read().splitlines()
        sys.stdout.write(json.dumps({"lines": lines, "exit": code()}) + "\n")
        sys.stdout.flush()


def _here(order: Order, report: int) -> Callable[[], int]:
    """Whatever is imported, compiled and cached the first time is there for every fork after it."""
    try:
        code = _execute(order, report)
    finally:
        os.close(report)
    gc.freeze()
    return lambda: code


def _in_a_fork(order: Order, report: int) -> Callable[[], int]:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Never back into the host's loop over its input, and no exit handlers of the host's.
        os._exit(_execute(order, report))
    os.close(report)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _execute(order: Order, report: int) -> int:
    try:
        asyncio.run(execute(order, load_app(order.app), HERE, report))
    except BaseException:
        os.write(report, ("error " + traceback.format_exc().replace("\n", "\\n")).encode() + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    main()

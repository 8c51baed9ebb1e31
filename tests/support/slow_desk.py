"""The app that the process tests serve: runs that are quick, that wait, that pay, and that take their process along.

Tools write to the folder in SLOW_DESK_FOLDER what they did, and wait there for files that the test makes.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from wakeful.app import App, ToolCall
from wakeful.models.scripted import ScriptedProvider, call, calls, say

app = App()


def folder() -> Path:
    return Path(os.environ["SLOW_DESK_FOLDER"])


def note(call: ToolCall, word: str) -> None:
    with (folder() / f"{call.run.session_id}").open("a") as file:
        file.write(f"{word} {os.getpid()}\n")


async def opened(gate: str) -> None:
    while not (folder() / gate).exists():  # noqa: ASYNC110 - a file has no signal
        await asyncio.sleep(0.02)


@app.tool(idempotency="idempotent", timeout_seconds=120)
async def wait_for_gate(call: ToolCall, gate: str) -> str:
    """Wait until the test opens the gate."""
    note(call, "waiting")
    await opened(gate)
    note(call, "done")
    return "open"


@app.tool(idempotency="non_idempotent", timeout_seconds=120)
async def pay(call: ToolCall, gate: str) -> str:
    """Pay, slowly. Never twice."""
    note(call, "paying")
    await opened(gate)
    note(call, "paid")
    return "paid"


@app.tool(idempotency="idempotent")
async def take_the_process_along(call: ToolCall) -> str:
    """End the process in which it is executed."""
    note(call, "exiting")
    os._exit(3)


@app.tool(idempotency="idempotent")
async def touch_foreign_memory(call: ToolCall) -> str:
    """Crash the interpreter."""
    note(call, "touching")
    await opened("armed")
    return ctypes.string_at(0).decode()


@app.tool(idempotency="idempotent")
async def overflow_the_stack(call: ToolCall) -> str:
    """Recurse past the end of the machine's stack."""
    note(call, "recursing")
    await opened("armed")
    sys.setrecursionlimit(10**9)

    class Endless:
        def __repr__(self) -> str:
            return repr(self)

    return repr(Endless())


@app.tool(idempotency="idempotent")
async def eat_memory(call: ToolCall) -> str:
    """Take memory until the kernel has had enough of it: SIGKILL, without asking."""
    note(call, "eating")
    await opened("armed")
    eaten = bytearray(64 << 20)
    os.kill(os.getpid(), signal.SIGKILL)  # the suite's machine is not to run out of memory in earnest
    return str(len(eaten))


@app.tool(idempotency="idempotent", timeout_seconds=120)
async def be_deaf(call: ToolCall) -> str:
    """Hear no SIGTERM and give way to nobody; then end the process."""
    note(call, "deaf")
    await opened("armed")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)  # noqa: ASYNC251 - the fault under test
    os._exit(4)


@app.tool(idempotency="idempotent", timeout_seconds=120)
async def block_the_loop(call: ToolCall, seconds: float) -> str:
    """Keep the process's event loop from turning."""
    note(call, "blocking")
    time.sleep(seconds)  # noqa: ASYNC251 - the fault under test
    note(call, "done")
    return "blocked"


@app.tool(idempotency="idempotent", timeout_seconds=120)
async def rest(call: ToolCall, seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "rested"


@app.tool(idempotency="non_idempotent", timeout_seconds=120)
async def buy(call: ToolCall, seconds: float) -> str:
    """Buy something, in a while. Never twice."""
    note(call, f"bought-{call.key}")
    await asyncio.sleep(seconds)
    return "bought"


SCRIPTS = {
    "errand": [
        calls(call("rest", seconds=0.2), call("buy", seconds=0.3), call("rest", seconds=0.6)),
        calls(call("rest", seconds=0.3)),
        calls(call("buy", seconds=0.2)),
        say("done"),
    ],
    "quick": [say("done")],
    "gate": [calls(call("wait_for_gate", gate="gate")), say("done")],
    "pay": [calls(call("pay", gate="gate")), say("done")],
    "poison": [calls(call("take_the_process_along")), say("done")],
    "segfault": [calls(call("touch_foreign_memory")), say("done")],
    "overflow": [calls(call("overflow_the_stack")), say("done")],
    "hog": [calls(call("eat_memory")), say("done")],
    "deaf": [calls(call("be_deaf")), say("done")],
    "block": [calls(call("block_the_loop", seconds=4.0)), say("done")],
}
app.model_provider("scripted", ScriptedProvider(SCRIPTS))
POISON: list[Callable[..., object]] = [
    take_the_process_along,
    touch_foreign_memory,
    overflow_the_stack,
    eat_memory,
    be_deaf,
]
TOOLS: list[Callable[..., object]] = [wait_for_gate, pay, block_the_loop, rest, buy, *POISON]
for name in SCRIPTS:
    app.agent(name, model=f"scripted:{name}", tools=TOOLS)

"""The process of one suspect: executes it alone, renews its lease itself, and dies with its parent."""

import asyncio
import contextlib
import importlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from wakeful.actors.execution import Executes
from wakeful.actors.heartbeat import Heartbeat
from wakeful.actors.holdings import Holdings
from wakeful.actors.loop_watch import LoopWatch
from wakeful.actors.parent import die_with_parent
from wakeful.actors.suspect_orders import Order, decode, encode
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.ports.leases import LeaseKeeper
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

__all__ = ["SuspectHost", "run_child"]

_EXIT_ORPHANED = 69


@dataclass(frozen=True, slots=True)
class SuspectHost:
    """What executes one suspect, built in its own process."""

    executor: Executes
    keeper: Callable[[], LeaseKeeper]


def run_child(parent: socket.socket) -> int:
    """Execute what the parent orders; the exit code. Anything but an ending said to the parent is a death."""
    # The watch on the socket needs this interpreter to run; the kernel does not.
    die_with_parent()
    lines = _lines(parent)
    order = Order.from_message(next(lines))
    return asyncio.run(_execute(order, parent, lines))


async def _execute(order: Order, parent: socket.socket, lines: "Iterator[dict[str, Any]]") -> int:
    loop = asyncio.get_running_loop()
    holding = Holding(order.claim, trusted_until=order.trusted_until)
    holdings = Holdings()
    holdings.add(holding)

    def listen() -> None:
        with contextlib.suppress(OSError):
            for message in lines:
                if message.get("drain"):
                    loop.call_soon_threadsafe(_ask_back, holding)
        # The parent is gone. Its lease is no longer wanted by anybody who could say so.
        os._exit(_EXIT_ORPHANED)

    threading.Thread(target=listen, name="parent-watch", daemon=True).start()
    async with _open(order) as host:
        heartbeat = Heartbeat(
            owner=order.claim.lease.owner,
            keeper=host.keeper,
            holdings=holdings,
            watch=(watch := LoopWatch(loop)),
            loop=loop,
            lease=order.lease,
            interval=order.heartbeat,
            adopt=None,  # the other leases of this owner are the worker's to renew
        )
        heartbeat.start()
        with contextlib.suppress(OSError):
            parent.sendall(encode({"renewing": True}))
        watch.executing(order.claim.lease.run.run_id)
        try:
            ending: Ending = await host.executor.execute(holding)
        finally:
            await heartbeat.stop()
    with contextlib.suppress(OSError):
        parent.sendall(encode({"ending": ending.name}))
    return 0


def _open(order: Order) -> AbstractAsyncContextManager[SuspectHost]:
    module, _, name = order.target.partition(":")
    target = getattr(importlib.import_module(module), name, None)
    if target is None:
        raise ConfigurationError(f"there is no {order.target} to execute suspects with")
    opened: AbstractAsyncContextManager[SuspectHost] = target(order.settings)
    return opened


def _ask_back(holding: Holding) -> None:
    holding.draining = True
    holding.changed.set()


def _lines(parent: socket.socket) -> "Iterator[dict[str, Any]]":
    with parent.makefile("rb") as file:
        for line in file:
            yield decode(line)

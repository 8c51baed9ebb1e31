"""Executing suspects: each alone in a process of its own, so that a poison run takes no neighbour with it."""

import asyncio
import itertools
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from wakeful.actors.execution import SuspectDied
from wakeful.actors.suspect_forks import ForkedServer
from wakeful.actors.suspect_orders import Order, SuspectSpec, decode, encode
from wakeful.actors.suspect_server import Forks
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

__all__ = ["SuspectSpec", "Suspects"]

_START_SECONDS = 60.0
_LAST_WORDS_SECONDS = 1.0


class Suspects:
    """Implements `wakeful.actors.execution.ExecutesSuspects` for one event loop.

    With a fork server that this process was forked beside, every suspect starts in milliseconds. Without one, or when
    it has ended, one is started with the next suspect, which takes a second or two.
    """

    def __init__(
        self,
        spec: SuspectSpec,
        *,
        lease: timedelta,
        heartbeat: timedelta | None = None,
        forked: ForkedServer | None = None,
    ) -> None:
        """Nothing is started. `heartbeat` is a third of the lease unless given."""
        self._spec, self._lease, self._heartbeat = spec, lease, heartbeat or lease / 3
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._forked = forked
        self._forks: Forks | None = None

    async def execute(self, holding: Holding, *, renewing: Callable[[], None]) -> Ending:
        """See the port. A drain asked of `holding` is passed on; cancelling kills the process, and so does not being
        ready to renew within a minute."""
        forks = await self._running_forks()
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        try:
            ended = forks.start(number, theirs)
        finally:
            theirs.close()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            writer.write(encode(self._order(holding).to_message()))
            asking = asyncio.create_task(_pass_on(holding, writer))
            try:
                return await _ending(reader, ended, renewing)
            finally:
                asking.cancel()
                writer.close()
        finally:
            if not ended.done():
                forks.kill(number)

    def _order(self, holding: Holding) -> Order:
        return Order(
            holding.claim,
            self._spec.target,
            self._spec.settings,
            self._lease,
            self._heartbeat,
            holding.trusted_until,
        )

    async def stop(self) -> None:
        """Kill every suspect's process and the fork server; on return none is left. Twice changes nothing."""
        async with self._starting:
            if (forked := self._take_forked()) is not None:
                self._forks = await Forks.adopt(forked)
            if self._forks is not None:
                await self._forks.stop()
                self._forks = None

    async def _running_forks(self) -> Forks:
        async with self._starting:
            if (forked := self._take_forked()) is not None:
                self._forks = await Forks.adopt(forked)
            if self._forks is None or not self._forks.alive:
                if self._forks is not None:
                    await self._forks.stop()
                self._forks = await Forks.launch(self._spec.preload)
            return self._forks

    def _take_forked(self) -> ForkedServer | None:
        forked, self._forked = self._forked, None
        return forked


async def _pass_on(holding: Holding, writer: asyncio.StreamWriter) -> None:
    while not holding.draining:
        holding.changed.clear()
        if not holding.draining:
            await holding.changed.wait()
    writer.write(encode({"drain": True}))


async def _ending(reader: asyncio.StreamReader, ended: "asyncio.Future[int]", renewing: Callable[[], None]) -> Ending:
    """What the process said before it ended. Raises SuspectDied when it said nothing."""
    saying = asyncio.create_task(_last_word(reader, renewing))
    saying.add_done_callback(lambda task: task.cancelled() or task.exception())  # a reset is told by the status
    try:
        # Not the end of the stream: a process that the run has left behind may hold it open.
        either: set[asyncio.Future[Any]] = {saying, ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done() and saying.done() and isinstance(saying.exception(), TimeoutError):
            raise SuspectDied(f"was not ready within {_START_SECONDS:g} s")
        status = await ended
        if status == 0:
            return Ending[await asyncio.wait_for(saying, _LAST_WORDS_SECONDS)]
    except (OSError, ValueError, KeyError):
        raise SuspectDied("ended without an ending") from None
    finally:
        saying.cancel()
    raise SuspectDied(_cause(status))


async def _last_word(reader: asyncio.StreamReader, renewing: Callable[[], None]) -> str:
    """The ending's name; on the way to it the process says that it renews its lease."""
    first = await asyncio.wait_for(reader.readline(), _START_SECONDS)
    if "renewing" not in decode(first):
        return str(decode(first)["ending"])
    renewing()
    return str(decode(await reader.readline())["ending"])


def _cause(status: int) -> str:
    return f"exited with signal {-status}" if status < 0 else f"exited with status {status}"

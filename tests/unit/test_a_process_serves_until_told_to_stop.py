"""A signal counts from the first moment of serving: what was taken up by then is handed back."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from wakeful.bootstrap.serving import serve
from wakeful.domain.errors import Unavailable

pytestmark = pytest.mark.anyio


class Recorded:
    """A service that writes down what is asked of it, and signals its own process where the test says."""

    def __init__(self, *, signal_in: str | None = None, fails: bool = False) -> None:
        self.said: list[str] = []
        self._signal_in, self._fails = signal_in, fails

    async def start(self) -> None:
        await self._do("start")
        if self._fails:
            raise Unavailable("no database")
        self.said.append("started")

    async def drain(self) -> None:
        await self._do("drain")

    async def stop(self) -> None:
        self.said.append("stop")

    async def _do(self, what: str) -> None:
        self.said.append(what)
        if self._signal_in == what:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.01)  # the signal is handled, and whatever it cancels is cancelled

    def ready(self) -> None:
        self.said.append("ready")


def signals() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


async def test_a_signal_while_it_starts_is_a_drain_once_it_has_started() -> None:
    service = Recorded(signal_in="start")
    async with asyncio.timeout(10):
        await serve(service, ready=service.ready)
    assert service.said == ["start", "started", "drain", "stop"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_it_serves_is_a_drain(number: signal.Signals) -> None:
    service = Recorded()
    before = signals()

    def ready() -> None:
        service.ready()
        os.kill(os.getpid(), number)

    async with asyncio.timeout(10):
        await serve(service, ready=ready)
    assert service.said == ["start", "started", "ready", "drain", "stop"]
    assert signals() == before


async def test_what_does_not_start_is_closed_and_the_signals_are_as_before() -> None:
    service = Recorded(fails=True)
    before = signals()
    with pytest.raises(Unavailable):
        await serve(service, ready=service.ready)
    assert service.said == ["start", "stop"]
    assert signals() == before


async def test_a_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    exit_process: Callable[[int], None] = ended.append
    monkeypatch.setattr(os, "_exit", exit_process)
    service = Recorded(signal_in="drain")
    async with asyncio.timeout(10):
        await serve(service, ready=lambda: os.kill(os.getpid(), signal.SIGINT))
    assert ended == [128 + signal.SIGTERM]

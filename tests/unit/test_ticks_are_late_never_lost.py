"""The ticker: intervals, errors, stopping, and clocks that are set back."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from support.pools import until

from wakeful.scheduler.service import Scheduler
from wakeful.scheduler.ticker import Ticker

pytestmark = pytest.mark.anyio

SOON = timedelta(milliseconds=10)
NEVER = timedelta(hours=1)


async def test_a_tick_is_called_at_once_and_then_at_its_interval() -> None:
    ticker, calls = Ticker(), 0

    async def tick() -> None:
        nonlocal calls
        calls += 1

    ticker.every(SOON, tick, name="soon")
    await ticker.start()
    try:
        await until(lambda: calls >= 5)
    finally:
        await ticker.stop()


async def test_a_tick_that_blocked_for_many_intervals_is_made_up_for_by_one_call() -> None:
    ticker, calls = Ticker(), 0

    async def tick() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            time.sleep(0.3)  # noqa: ASYNC251 - the loop is late on purpose

    ticker.every(SOON * 10, tick, name="late")
    await ticker.start()
    try:
        await until(lambda: calls >= 2)
        assert calls == 2
    finally:
        await ticker.stop()


async def test_a_tick_is_never_called_twice_at_the_same_time() -> None:
    ticker, running, most, calls = Ticker(), 0, 0, 0

    async def tick() -> None:
        nonlocal running, most, calls
        running += 1
        most, calls = max(most, running), calls + 1
        await asyncio.sleep(0.05)  # longer than the interval
        running -= 1

    ticker.every(SOON, tick, name="slow")
    await ticker.start()
    try:
        await until(lambda: calls >= 3)
    finally:
        await ticker.stop()
    assert most == 1


async def test_a_tick_that_raises_is_called_again() -> None:
    ticker, calls = Ticker(), 0

    async def tick() -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ValueError("not yet")

    ticker.every(SOON, tick, name="failing")
    await ticker.start()
    try:
        await until(lambda: calls >= 4)
    finally:
        await ticker.stop()


async def test_stopping_lets_a_running_tick_finish() -> None:
    ticker, started, finished = Ticker(), asyncio.Event(), False

    async def tick() -> None:
        nonlocal finished
        started.set()
        await asyncio.sleep(0.05)  # still at it when the stop comes
        finished = True

    ticker.every(NEVER, tick, name="slow")
    await ticker.start()
    await started.wait()
    await ticker.stop()
    assert finished


async def test_a_clock_set_back_stops_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.scheduler.ticker.GUARD_INTERVAL", SOON)
    ticker, calls = Ticker(), 0

    async def tick() -> None:
        nonlocal calls
        calls += 1

    ticker.every(SOON, tick, name="tick")
    await ticker.start()
    try:
        await until(lambda: calls >= 1)
        # What a clock that goes back by an hour leaves: a next time an hour away.
        assert ticker._scheduler is not None
        ticker._scheduler.modify_job("tick", next_run_time=datetime.now(UTC) + NEVER)
        before = calls
        await until(lambda: calls > before)
    finally:
        await ticker.stop()


async def test_starting_and_stopping_may_be_repeated_and_left_out() -> None:
    scheduler = Scheduler(())
    await scheduler.stop()
    await scheduler.start()
    await scheduler.start()
    await scheduler.stop()
    await scheduler.stop()

"""A storm from servers to verdict."""

import asyncio
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import psycopg

from wakeful.bootstrap import build
from wakeful.bootstrap.apps import catalogue_of, load_app
from wakeful.bootstrap.stack import Stack
from wakeful.client import Backend, Wakeful
from wakeful.client.owners import scope_of
from wakeful.domain.runs import Run
from wakeful.domain.states import RunStatus
from wakeful.faults.chaos import Chaos, Kill
from wakeful.faults.checker import Checked, Finding, ServerWatch, check_database
from wakeful.faults.crashes.programs import PROGRAM
from wakeful.faults.crashes.shapes import ASKED, LEDGER_VARIABLE, PACE_VARIABLE, WITNESSED
from wakeful.faults.environment import in_environment
from wakeful.faults.ledger import Book, LedgerProcess
from wakeful.faults.owners import OwnerNotes
from wakeful.faults.proxy import FaultProxy
from wakeful.faults.storm.counts import StormCounts
from wakeful.faults.storm.skew import skewed
from wakeful.faults.storm.traffic import Traffic
from wakeful.faults.storm.weather import Weather
from wakeful.faults.storm.witness import APP_VARIABLE, OWNERS_VARIABLE, WITNESS

__all__ = ["BUILT_IN", "SERVER", "StormOptions", "StormReport", "storm"]

BUILT_IN = "wakeful.faults.crashes.shapes:app"
OWNER = "storm"
SKEW = timedelta(hours=1)
FOR_PEOPLE = (RunStatus.WAITING_INPUT, RunStatus.WAITING_APPROVAL)
SETTLE_SECONDS = 120.0
"""Longer than a run hit twice waits for its leases and for the backoff."""
PACE_SECONDS = 0.15
"""From an effect to its result: where a death is worst."""
SERVER: dict[str, str | int | bool] = {"fsync": False, "max_connections": 200}
"""The processes die here, and not the machine: what PostgreSQL has written the next one reads."""
_DEADLOCK = re.compile(r"deadlock detected")
_RESUMED = b"""
SELECT extract(epoch FROM min(created_at))::float8 FROM wakeful.events
 WHERE run_id = %s AND event_type IN ('run.resumed', 'run.started') AND created_at > to_timestamp(%s)
"""
_UNCERTAIN = b"SELECT count(*) FROM wakeful.events WHERE event_type = 'tool.call.uncertain'"


@dataclass(frozen=True, slots=True)
class StormOptions:
    seconds: float
    seed: int
    app: str = BUILT_IN
    message: str = "Go"
    workers: int = 3
    slots: int = 8
    at_once: int = 12
    lease: timedelta = timedelta(seconds=5)
    death_notice: timedelta | None = None

    def lasting(self, seconds: float) -> "StormOptions":
        return replace(self, seconds=seconds)


@dataclass(slots=True)
class StormReport:
    """`logs` is what the processes said, kept when something was found."""

    counts: StormCounts = field(default_factory=StormCounts)
    findings: list[Finding] = field(default_factory=list)
    logs: Path | None = None
    clocks: list[int] = field(default_factory=list)
    """How many hours the clocks of processes that had effects were ahead of the ledger's."""


def storm(options: StormOptions, say: Callable[[str], None]) -> StormReport:
    """Let it rage for so long, wait for every run's end, and judge. Nothing runs any more on return.

    Raises what kept the servers from starting, and ChildDied for a process that ended without being killed.
    """
    folder = Path(tempfile.mkdtemp(prefix="wakeful-storm-"))
    proxies: list[FaultProxy] = []

    def through(dsn: str) -> str:
        if not proxies:
            proxies.append(FaultProxy(dsn).start())
        return proxies[0].proxied()

    try:
        with ExitStack() as scene:
            ledger = scene.enter_context(LedgerProcess())
            environment = {
                LEDGER_VARIABLE: str(ledger.socket),
                PACE_VARIABLE: str(PACE_SECONDS),
                APP_VARIABLE: options.app,
                OWNERS_VARIABLE: str(folder / "owners"),
            }
            for name, value in environment.items():
                scene.enter_context(in_environment(name, value))
            stack = Stack(app=WITNESS, workers=0, settings=_settings(options), server_settings=SERVER, through=through)
            scene.enter_context(stack)
            watch = ServerWatch(stack.database_url)
            watch.begin()
            _spawn(stack, options.workers, folder)
            report = asyncio.run(_raging(stack, proxies[0], options, folder, say))
            say("the storm is over: checking what it left")
            for child in stack.children:
                child.stop()
            proxies[0].stop()
            _judge(report, stack, watch, ledger.read(), options)
            if report.findings:
                report.logs = shutil.copytree(stack.logs, Path(tempfile.mkdtemp(prefix="wakeful-storm-logs-")) / "logs")
            return report
    finally:
        for proxy in proxies:
            proxy.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _settings(options: StormOptions) -> dict[str, object]:
    settings: dict[str, object] = {"slots": options.slots, "lease_seconds": options.lease.total_seconds()}
    if options.death_notice is not None:
        settings["death_notice_seconds"] = options.death_notice.total_seconds()
    return settings


def _spawn(stack: Stack, workers: int, folder: Path) -> None:
    """Of three workers one lives an hour later and one an hour earlier than everybody else."""
    for number in range(workers):
        hours = (0, 1, -1)[number % 3]
        with skewed(folder / "clock", hours * SKEW.total_seconds()):
            stack.spawn_worker()
    stack.wait_ready()


async def _raging(
    stack: Stack, proxy: FaultProxy, options: StormOptions, folder: Path, say: Callable[[str], None]
) -> StormReport:
    dice, report = random.Random(options.seed), StormReport()  # noqa: S311 - dice, no secret
    async with build.open_client(stack.settings) as parts:
        chaos = Chaos(stack, parts.store, scope_of(OWNER, OWNER), OwnerNotes(folder / "owners"), dice)
        weather = Weather(stack, proxy, chaos, parts.wakeups, dice, options.lease, report.counts)
        wakeful = Wakeful(Backend(parts.store, parts.wakeups), tenant=OWNER, principal=OWNER)
        waiting = partial(parts.store.runs.page, scope_of(OWNER, OWNER), statuses=FOR_PEOPLE, limit=100)
        traffic = Traffic(wakeful, waiting, dice, _messages(options), options.at_once)
        flowing, raging = asyncio.create_task(traffic.flow()), asyncio.create_task(weather.rage())
        try:
            await asyncio.wait({flowing, raging}, timeout=options.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            raging.cancel()
            await asyncio.gather(raging, return_exceptions=True)
            await weather.calm()
            traffic.close()
        say("calm: waiting for the last runs")
        report.findings += await _settled(flowing, traffic)
        report.counts.runs = len(traffic.ended)
        report.findings += _ended_well(traffic.ended, weather)
    report.counts.recovery_seconds = _recoveries(stack.database_url, weather.kills)
    return report


async def _settled(flowing: "asyncio.Task[None]", traffic: Traffic) -> list[Finding]:
    """Wait for the last runs; those that no longer move are findings."""
    await asyncio.wait({flowing}, timeout=SETTLE_SECONDS)
    if flowing.done():
        flowing.result()
        return []
    flowing.cancel()
    await asyncio.gather(flowing, return_exceptions=True)
    left = [await run.read() for run in traffic.submitted]
    return [
        Finding("every run moves on in calm", run.ref.run_id, f"{run.status}, {run.lease_expirations} expirations")
        for run in left
        if not run.status.terminal
    ]


def _messages(options: StormOptions) -> Iterator[tuple[str, str]]:
    if options.app == BUILT_IN:
        return ((PROGRAM, f"{PROGRAM}-{number}") for number in count(options.seed * 100_000))
    names = catalogue_of(load_app(options.app)).names
    return ((names[number % len(names)], options.message) for number in count())


def _ended_well(ended: list[Run], weather: Weather) -> Iterator[Finding]:
    for run in ended:
        if run.failure is not None and run.failure.code == "max_attempts_exceeded":
            hits = weather.hits[run.ref.run_id]
            if hits < run.lease_expirations:
                seen = f"{run.lease_expirations} expirations, hit {hits} times"
                yield Finding("only a fault costs a lease", run.ref.run_id, seen)
        elif run.status is RunStatus.FAILED:
            yield Finding("no fault fails a run", run.ref.run_id, run.failure.code if run.failure else "no reason")


def _recoveries(dsn: str, kills: list[Kill]) -> list[float]:
    """How long each run of a killed worker waited for its next execution."""
    seconds = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for kill in kills:
            for run in kill.runs:
                row = connection.execute(_RESUMED, [run.ref.run_id, kill.at]).fetchone()
                if row is not None and row[0] is not None:
                    seconds.append(row[0] - kill.at)
    return sorted(seconds)


def _judge(report: StormReport, stack: Stack, watch: ServerWatch, book: Book, options: StormOptions) -> None:
    effects: Counter[str] | None = None
    if options.app == BUILT_IN:
        done = [effect for effect in book.effects if effect.what != ASKED]
        effects = Counter(effect.key for effect in done)
        report.clocks = sorted({round((effect.payload["clock"] - effect.at) / 3600) for effect in done})
    checked: Checked = check_database(stack.database_url, effects=effects, tools=WITNESSED, settled=True)
    report.findings += checked.findings
    report.findings += watch.findings(at_rest=True)
    if deadlocks := len(_DEADLOCK.findall(stack.postgres.log.read_text("utf-8", "replace"))):
        report.findings.append(Finding("no deadlock", "server", f"{deadlocks} in the server's log"))
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        row = connection.execute(_UNCERTAIN).fetchone()
        report.counts.uncertain = row[0] if row else 0

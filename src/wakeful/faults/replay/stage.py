"""A replay from servers to verdict."""

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from wakeful.bootstrap import build
from wakeful.bootstrap.stack import Stack
from wakeful.domain.errors import Unavailable
from wakeful.domain.ids import new_id
from wakeful.domain.ports.wakeups import Wakeups
from wakeful.domain.states import IdempotencyClass
from wakeful.faults.chaos import Chaos
from wakeful.faults.environment import in_environment
from wakeful.faults.ledger import Book, LedgerProcess, judge_book
from wakeful.faults.owners import OwnerNotes
from wakeful.faults.replay.comparing import compare, expected_effects
from wakeful.faults.replay.plan import Conversation, Plan, Selection
from wakeful.faults.replay.progress import ReplayProgress
from wakeful.faults.replay.report import Report
from wakeful.faults.replay.submitting import SCOPE, Outcome, Submitter
from wakeful.faults.replay.workload import WORKLOAD_VARIABLE
from wakeful.faults.replay.workload_file import write_workload

__all__ = ["Faults", "Options", "stage_replay"]

CHECKPOINTS_EVERY = timedelta(milliseconds=250)
# A run hit twice waits for its lease twice and for the backoff twice; nothing waits longer without moving.
STALL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Faults:
    """What is done to the system meanwhile; None and False are nothing."""

    kill_every: timedelta | None = None
    flush_broker_every: timedelta | None = None
    lose_checkpoints: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    workers: int
    slots: int
    lease: timedelta
    tool_delay: timedelta
    tool_class: IdempotencyClass
    ledger: Path | None
    faults: Faults


def stage_replay(selection: Selection, options: Options, progress: ReplayProgress) -> Report:
    """Start everything, put the selection through, judge it; nothing runs any more on return.

    Raises what kept the servers from starting, ChildDied, and Timeout when the runs no longer move.
    """
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="wakeful-replay-"))
    try:
        with LedgerProcess(options.ledger) as ledger:
            before = ledger.read()
            plan = Plan(
                batch=new_id(),
                lines=selection.lines,
                ledger=ledger.socket,
                owners=folder / "owners",
                tool_class=options.tool_class,
                tool_delay_seconds=options.tool_delay.total_seconds(),
            )
            write_workload(folder / "workload.json", plan.workload(), plan.lines)
            with in_environment(WORKLOAD_VARIABLE, str(folder / "workload.json")), _stack(options) as stack:
                report = asyncio.run(_replay(stack, plan, options, progress))
            _judge(report, _since(before, ledger.read()), plan)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.skipped = dict(selection.skipped)
    report.seconds = time.monotonic() - started
    return report


def _stack(options: Options) -> Stack:
    settings: dict[str, object] = {"slots": options.slots, "lease_seconds": options.lease.total_seconds()}
    return Stack(app="wakeful.faults.replay.workload:app", workers=options.workers, settings=settings)


async def _replay(stack: Stack, plan: Plan, options: Options, progress: ReplayProgress) -> Report:
    conversations = plan.conversations()
    async with build.open_client(stack.settings) as parts:
        chaos = Chaos(stack, parts.store, SCOPE, OwnerNotes(plan.owners), random.Random(options.faults.seed))  # noqa: S311
        outcomes = await _submit(parts.store, parts.wakeups, conversations, options, chaos, progress)
        progress.say("comparing")
        report = Report(
            conversations=len(conversations),
            kills=chaos.counts.kills,
            checkpoints_deleted=chaos.counts.checkpoints_deleted,
            broker_flushes=chaos.counts.broker_flushes,
        )
        for outcome in outcomes:
            difference = await compare(parts.store, outcome)
            if outcome.stopped is not None and outcome.runs:
                difference = f"{difference} (we killed its worker {chaos.hits[outcome.runs[-1].ref.run_id]} times)"
            if difference is not None:
                report.different[outcome.conversation.recording.id] = difference
            report.interrupted_runs += sum(1 for run in outcome.runs if run.lease_expirations > 0)
        report.identical = report.conversations - len(report.different)
        return report


async def _submit(
    store: Any,
    wakeups: Wakeups,
    conversations: list[Conversation],
    options: Options,
    chaos: Chaos,
    progress: ReplayProgress,
) -> list[Outcome]:
    submitter = Submitter(store, wakeups, stall_seconds=STALL_SECONDS, on_run=progress.run_ended)
    faults = [asyncio.create_task(each) for each in _faults(options.faults, chaos, progress)]
    submitting = asyncio.create_task(submitter.submit_all(conversations))
    progress.say("replaying")
    try:
        # A fault that cannot be made is no reason to go on as if it had been.
        await asyncio.wait({submitting, *faults}, return_when=asyncio.FIRST_COMPLETED)
        for task in faults:
            if task.done():
                task.result()
        return await submitting
    finally:
        for task in (submitting, *faults):
            task.cancel()
        # A kill in progress ends with its worker started again.
        await asyncio.gather(submitting, *faults, return_exceptions=True)


def _faults(faults: Faults, chaos: Chaos, progress: ReplayProgress) -> Iterator[Any]:
    if faults.kill_every is not None:
        yield _every(faults.kill_every, chaos.kill_worker, chaos, progress)
    if faults.flush_broker_every is not None:
        yield _every(faults.flush_broker_every, chaos.flush_broker, chaos, progress)
    if faults.lose_checkpoints:
        yield _every(CHECKPOINTS_EVERY, chaos.lose_checkpoints, chaos, progress)


async def _every(
    interval: timedelta, fault: Callable[[], Awaitable[object]], chaos: Chaos, progress: ReplayProgress
) -> None:
    while True:
        await asyncio.sleep(interval.total_seconds())
        # One that could not be made for want of a connection is made the next time, and is not counted.
        with suppress(Unavailable):
            await fault()
        progress.hit(chaos.counts)


def _judge(report: Report, book: Book, plan: Plan) -> None:
    expected = expected_effects(plan.conversations())
    judgement = judge_book(book, expected)
    report.calls = expected.total()
    report.effects = len(book.effects)
    report.replayed = book.replayed
    report.duplicate_effects = len(judgement.duplicate)
    report.lost_effects = len(judgement.lost)


def _since(before: Book, after: Book) -> Book:
    """What this replay did in a ledger that may hold earlier ones."""
    return Book(after.effects[len(before.effects) :], after.replayed - before.replayed)

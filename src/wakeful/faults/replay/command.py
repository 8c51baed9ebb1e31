"""`wakeful replay`."""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from wakeful.domain.states import IdempotencyClass
from wakeful.faults.replay.plan import Selection, read_selection
from wakeful.faults.replay.progress import replay_progress
from wakeful.faults.replay.report import Report, print_report
from wakeful.faults.replay.stage import Faults, Options, stage_replay
from wakeful.models.recording import read_recording

__all__ = ["replay"]

HOLDS, DOES_NOT_HOLD = 0, 1


def replay(
    files: Annotated[list[Path], typer.Argument(help="JSON lines of recorded conversations.")],
    *,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="Runs that one worker executes at once.")] = 8,
    kill_every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="SIGKILL a worker that executes runs, this often.")
    ] = None,
    lose_checkpoints: Annotated[
        bool, typer.Option("--lose-checkpoints", help="Delete checkpoints of executing runs.")
    ] = False,
    flush_broker_every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Empty the broker, this often.")
    ] = None,
    lease: Annotated[
        float, typer.Option(min=0.5, metavar="SECONDS", help="How long a worker may hold silently.")
    ] = 30.0,
    tool_delay: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="From a tool's effect to its result.")
    ] = 0.0,
    tool_class: Annotated[
        IdempotencyClass, typer.Option(help="What the tools declare themselves to be.")
    ] = IdempotencyClass.CONDITIONALLY_IDEMPOTENT,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many, evenly spread over the files.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The file of the effect ledger, kept; temporary when left out.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the dice that choose what is hit.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Run recorded conversations through the whole system, with faults if asked, and compare what comes out.

    Servers, workers and a scheduler are started for this and end with it. Exit code 0: every conversation is
    identical and every effect happened once. 1: something differs, was done twice or was lost. 2: a file cannot be
    read.
    """
    selection = read_selection(files, limit=limit)
    if not selection.lines:
        return _finish(Report(skipped=dict(selection.skipped)), as_json=as_json)
    options = Options(
        workers=workers,
        slots=slots,
        lease=timedelta(seconds=lease),
        tool_delay=timedelta(seconds=tool_delay),
        tool_class=tool_class,
        ledger=None if ledger is None else ledger.absolute(),
        faults=Faults(_seconds(kill_every), _seconds(flush_broker_every), lose_checkpoints, seed),
    )
    with replay_progress(_runs(selection), Console(stderr=True)) as progress:
        report = stage_replay(selection, options, progress)
    return _finish(report, as_json=as_json)


def _finish(report: Report, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(), ensure_ascii=False) + "\n")
    else:
        print_report(report, Console())
    return HOLDS if report.holds else DOES_NOT_HOLD


def _runs(selection: Selection) -> int:
    return sum(len(read_recording(line).runs) for line in selection.lines)


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)

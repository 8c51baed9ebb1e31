"""`wakeful chaos`."""

import json
import random
import sys
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console

from wakeful.faults.campaign.campaign import CampaignOptions, campaign, reproduce
from wakeful.faults.campaign.report import CampaignReport, print_report
from wakeful.faults.storm.storm import BUILT_IN, StormOptions

__all__ = ["chaos"]

HOLDS, DOES_NOT_HOLD = 0, 1


def chaos(
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long, about.")] = 30.0,
    full: Annotated[bool, typer.Option("--full", help="Do everything, however long it takes.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of all dice; printed at the end.")] = None,
    app: Annotated[
        str, typer.Option(metavar="MODULE:APP", help="Your own agents, in a storm; else built-in ones.")
    ] = BUILT_IN,
    message: Annotated[str, typer.Option(help="What is said to your agents.")] = "Go",
    storm_only: Annotated[bool, typer.Option("--storm-only", help="No crash points, pairs and programs.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes in the storm.")] = 3,
    at_once: Annotated[int, typer.Option(min=1, help="Runs at any time in the storm.")] = 12,
    lease: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="The workers' lease in the storm.")] = 5.0,
    death_notice: Annotated[
        float | None, typer.Option(min=0.5, metavar="SECONDS", help="How long a dead worker's mark has to be gone.")
    ] = None,
    reproducing: Annotated[
        str | None, typer.Option("--reproduce", metavar="EXPERIMENT", help="One experiment by the name it was given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Kill, cut, freeze and restart everything at random, and check what comes of it.

    First executors die at every statement and effect of built-in runs, in pairs of such places, and in random
    programs. Then workers, scheduler, broker, database and network fail under a load of runs, and a checker goes over
    the database and over what an outside ledger saw. Servers and workers are started for this and end with it. With
    --app your own agents go through the storm: their questions are answered, their calls approved. Exit code 0:
    nothing was found. 1: something was; each finding names the command that reproduces it, or its seed.
    """
    chosen = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - dice, no secret
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, style="dim", highlight=False)

    if reproducing is not None:
        return _finish(reproduce(reproducing, chosen, say), as_json=as_json)
    storm = StormOptions(
        seconds=0.0,
        seed=chosen,
        app=app,
        message=message,
        workers=workers,
        at_once=at_once,
        lease=timedelta(seconds=lease),
        death_notice=None if death_notice is None else timedelta(seconds=death_notice),
    )
    options = CampaignOptions(None if full else minutes * 60, storm, experiments=not storm_only)
    return _finish(campaign(options, say), as_json=as_json)


def _finish(report: CampaignReport, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(json.dumps(report.as_json()) + "\n")
    else:
        print_report(report, Console())
    return HOLDS if report.holds else DOES_NOT_HOLD

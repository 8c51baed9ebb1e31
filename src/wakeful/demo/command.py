"""`wakeful demo`."""

import asyncio
import time
from typing import Annotated

import typer
from rich.console import Console

from wakeful.bootstrap import build
from wakeful.bootstrap.stack import Stack
from wakeful.demo.desk import LEDGER_VARIABLE
from wakeful.demo.letter import second_scene
from wakeful.demo.stage import set_stage
from wakeful.demo.storm import first_scene
from wakeful.demo.verdict import Verdict
from wakeful.faults.environment import in_environment
from wakeful.faults.ledger import LedgerProcess

__all__ = ["demo"]

SETTINGS: dict[str, object] = {"lease_seconds": 2, "slots": 16}
"""A short lease, so that nobody has to watch a dead worker's lease run out."""


def demo(
    *,
    seed: Annotated[int | None, typer.Option(help="Of the dice that choose what is hit.")] = None,
) -> int:
    """Show what survives: conversations of a support desk, disturbed on purpose, and a verdict.

    Starts servers, workers and a scheduler of its own, and ends them. Exit code 0 only if the verdict holds.
    """
    console, started = Console(), time.monotonic()
    with LedgerProcess() as ledger, in_environment(LEDGER_VARIABLE, str(ledger.socket)):
        with console.status("Starting PostgreSQL, Valkey, two workers and a scheduler"):
            stack = Stack(app="wakeful.demo.desk:app", workers=2, settings=SETTINGS).start()
        try:
            verdict = asyncio.run(_play(stack, ledger, console, seed))
        finally:
            # Nothing is waited for that a reader of the verdict would miss.
            stack.stop(timeout_seconds=5.0)
    verdict.show(console)
    console.print(f"[dim]{time.monotonic() - started:.0f} s in all[/]", highlight=False)
    return 0 if verdict.holds else 1


async def _play(stack: Stack, ledger: LedgerProcess, console: Console, seed: int | None) -> Verdict:
    async with build.open_client(stack.settings) as parts:
        stage = set_stage(stack, parts, ledger, console, seed)
        await first_scene(stage)
        await second_scene(stage)
        return stage.verdict

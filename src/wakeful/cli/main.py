"""The `wakeful` command."""

import importlib.metadata
import json
import os
import sys
from typing import Annotated

import typer

from wakeful.cli import database, diagnosis, runs, services, sessions, staying
from wakeful.cli.exit_codes import ExitCode, exit_code
from wakeful.cli.later import WithLater
from wakeful.cli.output import data, note
from wakeful.domain.errors import WakefulError

__all__ = ["app", "main"]

app = typer.Typer(
    cls=WithLater,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Durable execution for AI agents on PostgreSQL. Settings come from WAKEFUL_… variables.",
)
app.command()(staying.up)
app.command()(diagnosis.doctor)
app.command()(services.worker)
app.command()(services.scheduler)
app.add_typer(runs.commands, name="run")
app.add_typer(sessions.commands, name="session")
app.add_typer(sessions.event_commands, name="events")
app.add_typer(database.commands, name="db")


def _print_version(asked: bool) -> None:
    if asked:
        data(importlib.metadata.version("wakeful"))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What every command shares."""


def main() -> None:
    """Run the command line. An expected error is one line on standard error and an exit code, never a traceback."""
    try:
        app()
    except WakefulError as error:
        _report(error)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        # Whoever read our output has enough of it; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.FAILURE)


def _report(error: WakefulError) -> None:
    if "--json" in sys.argv:
        note(json.dumps({"error": {"code": error.code, "message": str(error)}}, ensure_ascii=False))
    else:
        note(f"error: {error}")

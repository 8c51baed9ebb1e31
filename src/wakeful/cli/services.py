"""`wakeful worker` and `wakeful scheduler`: processes that stay."""

import asyncio
import os
from typing import Annotated

import typer

from wakeful.bootstrap import build
from wakeful.bootstrap.children import report_ready, watch_owner
from wakeful.bootstrap.imports import imports_kept
from wakeful.bootstrap.serving import serve
from wakeful.bootstrap.settings import load_settings
from wakeful.cli.output import note
from wakeful.domain.errors import ConfigurationError, InvalidInput
from wakeful.domain.states import PriorityClass

__all__ = ["scheduler", "worker"]

ReadyFd = Annotated[int | None, typer.Option(hidden=True, help="Where to report that it serves.")]
OwnerFd = Annotated[int | None, typer.Option(hidden=True, help="Its end of file is a SIGTERM.")]


def worker(
    app: Annotated[str | None, typer.Option(metavar="MODULE:APP", help="What to serve. [WAKEFUL_APP]")] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", help="Serve only this priority class; may be given again. Every class by default."),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Runs at once. [WAKEFUL_SLOTS]")] = None,
    floor: Annotated[
        list[str] | None, typer.Option(metavar="CLASS=N", help="Slots reserved for a class; may be given again.")
    ] = None,
    ready_fd: ReadyFd = None,
    owner_fd: OwnerFd = None,
) -> None:
    """Execute runs until SIGTERM or Ctrl-C, then drain: what is not done by the grace time is handed back."""
    settings = load_settings(app=app)
    _configure_logs()
    if settings.app is None:
        raise ConfigurationError("a worker needs --app module:app (or WAKEFUL_APP)")
    served = [_class(each) for each in classes or []] or list(PriorityClass)
    floors = dict(_floor(each) for each in floor or [])
    with imports_kept():
        forked = build.suspect_forks()
        loaded = build.load_app(settings.app)
        service = build.worker(settings, loaded, slots=slots, classes=served, floors=floors, forked=forked)
    watch_owner(owner_fd)
    said = f"worker serves {', '.join(service.agents)}"
    asyncio.run(serve(service, ready=lambda: _ready(ready_fd, said)))


def scheduler(ready_fd: ReadyFd = None, owner_fd: OwnerFd = None) -> None:
    """Run the sweeps until SIGTERM or Ctrl-C. Two at once are harmless."""
    settings = load_settings()
    _configure_logs()
    with imports_kept():
        service = build.scheduler(settings)
    watch_owner(owner_fd)
    asyncio.run(serve(service, ready=lambda: _ready(ready_fd, "scheduler runs")))


def _ready(ready_fd: int | None, said: str) -> None:
    report_ready(ready_fd)
    note(f"{said} (pid {os.getpid()})")


def _configure_logs() -> None:
    # Imported here: no other command needs the logging library.
    from wakeful.bootstrap.logs import configure_logs

    configure_logs()


def _class(text: str) -> PriorityClass:
    try:
        return PriorityClass.parse(text)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def _floor(text: str) -> tuple[PriorityClass, int]:
    name, _, number = text.partition("=")
    if not number.isdigit():
        raise InvalidInput(f"--floor {text!r} must read class=n, for example interactive=8")
    return _class(name), int(number)

"""`wakeful up`: the whole stack on this machine, to stay."""

import contextlib
import shlex
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wakeful.bootstrap.stack import Child, Stack

from wakeful.bootstrap import build
from wakeful.cli.common import Json
from wakeful.cli.output import data, note, print_json_line

__all__ = ["up"]

DEMO_APP = "wakeful.demo.desk:app"
EXAMPLE = """wakeful run submit --agent support --metadata '{"story": "where is it"}' --wait "Where is order 1001?\""""
LOOK_SECONDS = 0.5
# A worker that cannot start must not be started in a tight loop.
FIRST_RESTART_SECONDS = 1.0
LONGEST_RESTART_SECONDS = 30.0


def up(
    app: Annotated[
        str, typer.Option(metavar="MODULE:APP", help="What the workers serve; the demonstration's app by default.")
    ] = DEMO_APP,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes.")] = 2,
    slots: Annotated[int | None, typer.Option(min=1, help="Runs at once, per worker.")] = None,
    data_directory: Annotated[
        Path | None, typer.Option("--data", metavar="FOLDER", help="Where the data is kept; the cache by default.")
    ] = None,
    temporary: Annotated[bool, typer.Option("--temporary", help="Keep nothing.")] = False,
    tcp: Annotated[bool, typer.Option("--tcp", help="Listen on 127.0.0.1 with passwords, not on sockets.")] = False,
    as_json: Json = False,
) -> None:
    """Start PostgreSQL, Valkey, workers and a scheduler, print how to connect, stay until Ctrl-C."""
    from wakeful.bootstrap.stack import Stack
    from wakeful.embedded import cache_directory

    asked = _asked_to_stop()
    folder = None if temporary else data_directory or cache_directory("up")
    arguments = ("--slots", str(slots)) if slots else ()
    with _effects(app):
        build.load_app(app)
        stack = Stack(app=app, workers=workers, worker_arguments=arguments, data_directory=folder, loopback=tcp)
        note("starting PostgreSQL, Valkey, workers and a scheduler …")
        try:
            stack.start()
            _announce(stack, folder, as_json=as_json)
            _look_after(stack, asked)
            note("stopping …")
        finally:
            _stop(stack)


@contextlib.contextmanager
def _effects(app: str) -> Iterator[None]:
    """The demonstration's tools act on a ledger of effects, which has to be there."""
    if app != DEMO_APP:
        yield
        return
    from wakeful.demo.desk import LEDGER_VARIABLE
    from wakeful.faults.environment import in_environment
    from wakeful.faults.ledger import LedgerProcess

    with LedgerProcess() as ledger, in_environment(LEDGER_VARIABLE, str(ledger.socket)):
        yield


def _asked_to_stop() -> threading.Event:
    """Set by the first Ctrl-C or SIGTERM; a second one interrupts whatever is going on."""
    asked = threading.Event()

    def handle(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return asked


def _announce(stack: "Stack", folder: Path | None, *, as_json: bool) -> None:
    wanted = ("WAKEFUL_DATABASE_URL", "WAKEFUL_BROKER_URL", "WAKEFUL_ARTIFACTS_DIRECTORY")
    settings = {name: value for name, value in stack.environment.items() if name in wanted}
    if as_json:
        print_json_line({"settings": settings, "workers": [child.pid for child in stack.workers]})
    else:
        for name, value in settings.items():
            data(f"export {name}={shlex.quote(value)}")
    note(f"{len(stack.workers)} workers serve {stack.app}; data {f'in {folder}' if folder else 'is temporary'}")
    if stack.app == DEMO_APP:
        note(f"try, with these settings: {EXAMPLE}")
    note("stop with Ctrl-C; a second one does not wait for calls in flight")


def _look_after(stack: "Stack", asked: threading.Event) -> None:
    """Start again what died, later each time, until asked to stop."""
    pauses: dict[str, float] = {}
    while not asked.wait(LOOK_SECONDS):
        for child in stack.children:
            if not child.running:
                _restart(child, pauses, asked)


def _restart(child: "Child", pauses: dict[str, float], asked: threading.Event) -> None:
    pause = pauses.get(child.name, FIRST_RESTART_SECONDS)
    pauses[child.name] = min(pause * 2, LONGEST_RESTART_SECONDS)
    note(f"{child.name} ended with {child.exit_code}, starting it again in {pause:g} s (log: {child.log})")
    if not asked.wait(pause):
        child.start()


def _stop(stack: "Stack") -> None:
    try:
        stack.stop()
    except KeyboardInterrupt:
        note("not waiting any longer")
        for child in stack.children:
            child.kill()
        stack.stop()
        raise

"""Workers, schedulers and Dramatiq commands as processes, over the test's own database and broker."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from support.database import Database

HERE = Path(__file__).parent
WAIT_SECONDS = 90.0


@dataclass
class Machine:
    """Starts processes with one set of settings, and ends whatever still runs when the test is over."""

    database: Database
    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    _owners: list[int] = field(default_factory=list)

    def worker(self, *arguments: str, **settings: str) -> "subprocess.Popen[bytes]":
        return self._ready("worker", *arguments, **settings)

    def scheduler(self, **settings: str) -> "subprocess.Popen[bytes]":
        return self._ready("scheduler", **settings)

    def starting_worker(self, **settings: str) -> "subprocess.Popen[bytes]":
        """A worker, without waiting until it is ready."""
        return self._start([sys.executable, "-m", "wakeful", "worker"], settings)

    def dramatiq(self, *queues: str, **settings: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "dramatiq", "wakeful.actors.boot", "-p", "1", "-t", "1", "-Q", *queues]
        return self._start(command, settings)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def notes(self, session: object) -> list[str]:
        file = self.folder / str(session)
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []

    def _ready(self, *arguments: str, **settings: str) -> "subprocess.Popen[bytes]":
        read, write = os.pipe()
        owned, owner = os.pipe()  # the other end is closed when this process ends, however it does
        options = ["--ready-fd", str(write), "--owner-fd", str(owned)]
        process = self._start([sys.executable, "-m", "wakeful", *arguments, *options], settings, (write, owned))
        os.close(write)
        os.close(owned)
        self._owners.append(owner)
        with os.fdopen(read, "rb") as said:
            assert said.readline(), f"it ended before it was ready:\n{self.log()}"
        return process

    def _start(
        self, command: list[str], settings: Mapping[str, str], pass_fds: tuple[int, ...] = ()
    ) -> "subprocess.Popen[bytes]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WAKEFUL_")}
        # Compiled once for all processes of all tests, and not beside the sources.
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        kept["PYTHONPYCACHEPREFIX"] = str(platformdirs.user_cache_path("wakeful") / "bytecode")
        chosen = {
            "database_url": self.database.dsn,
            "role_prefix": self.database.role_prefix,
            "app": "support.slow_desk:app",
            **self.settings,
            **settings,
        }
        environment = {
            **kept,
            "SLOW_DESK_FOLDER": str(self.folder),
            "PYTHONPATH": str(HERE.parent),
            **{f"WAKEFUL_{name.upper()}": value for name, value in chosen.items()},
        }
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, pass_fds=pass_fds, start_new_session=True
            )
        self.started.append(process)
        return process


@contextmanager
def machine(database: Database, folder: Path, **settings: str) -> Iterator[Machine]:
    made = Machine(database, folder, settings)
    try:
        yield made
    finally:
        for process in made.started:
            # With its children: the Dramatiq command's outlive it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for owner in made._owners:
            os.close(owner)


async def until_fact(true: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Return when `true()` is: another process's doing has no signal here."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        await asyncio.sleep(0.02)

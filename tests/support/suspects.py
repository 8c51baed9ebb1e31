"""What the process of a suspect builds in tests: an execution that does what `settings["does"]` says."""

import asyncio
import os
import select
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from wakeful.actors.suspect_child import SuspectHost
from wakeful.domain.ports.leases import Heartbeat
from wakeful.domain.runs import Lease
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending


class Body:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    async def execute(self, holding: Holding) -> Ending:
        note_pid(self._settings["folder"])
        match self._settings["does"]:
            case "complete":
                return Ending.COMPLETED
            case "exit":
                os._exit(3)
            case "exit 0":
                os._exit(0)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "raise":
                raise MemoryError
            case "block":
                time.sleep(60)  # noqa: ASYNC251 - the fault under test
            case "wait":
                while not holding.draining:
                    holding.changed.clear()
                    await holding.changed.wait()
                return Ending.HANDED_BACK
        raise AssertionError(self._settings["does"])


def note_pid(folder: str) -> None:
    Path(folder, "parent").write_text(str(os.getppid()))
    Path(folder, "session").write_text(str(os.getsid(0)))
    Path(folder, "group").write_text(str(os.getpgid(0)))
    Path(folder, "pid").write_text(str(os.getpid()))


class Keeper:
    """Says of every heartbeat which leases it named."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "heartbeats"

    def heartbeat(self, owner: UUID, leases: Sequence[Lease], *, lease: timedelta) -> Heartbeat:
        with self._log.open("a") as log:
            log.write(f"{os.getpid()} {' '.join(str(each.run.run_id) for each in leases)}\n")
        return Heartbeat(renewed=frozenset(each.run.run_id for each in leases), lost=frozenset())

    def wait(self, seconds: float, wake: int) -> bool:
        select.select([wake], [], [], seconds)
        return False

    def close(self) -> None:
        return


@asynccontextmanager
async def host(settings: Mapping[str, Any]) -> AsyncIterator[SuspectHost]:
    await asyncio.sleep(0)
    yield SuspectHost(Body(settings), lambda: Keeper(Path(settings["folder"])))

"""Suspects: each in a process of its own, whose death is one run's crash at once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.pools import LEASE, Executions, let_expire, make_pool, memory, read, running, status, submit, until

from wakeful.actors.execution import SuspectDied
from wakeful.actors.slots import Slots
from wakeful.actors.suspect_forks import ForkedServer, fork_server
from wakeful.actors.suspects import Suspects, SuspectSpec
from wakeful.domain.ids import new_id
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import RunStatus
from wakeful.persistence.memory import MemoryStore
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio


def spec(does: str, folder: Path) -> SuspectSpec:
    return SuspectSpec("support.suspects:host", {"does": does, "folder": str(folder)}, preload=("support.suspects",))


@asynccontextmanager
async def suspects(
    does: str, folder: Path, lease: timedelta = LEASE, forked: ForkedServer | None = None
) -> AsyncIterator[Suspects]:
    made = Suspects(spec(does, folder), lease=lease, forked=forked)
    try:
        yield made
    finally:
        await made.stop()


async def held() -> Holding:
    store = memory()
    await submit(store)
    (claim,) = await store.queue.claim(
        new_id(), capacity=Slots(1).capacity(), agents=("clerk",), lease=LEASE, suspects=1
    )
    return Holding(replace(claim, suspect=True), trusted_until=time.monotonic() + 30)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_a_suspect_that_ends_well_says_how(tmp_path: Path) -> None:
    async with suspects("complete", tmp_path) as alone:
        assert await alone.execute(await held(), renewing=lambda: None) is Ending.COMPLETED
    assert int((tmp_path / "pid").read_text()) != os.getpid()


@pytest.mark.parametrize(
    ("does", "cause"),
    [
        ("exit", "exited with status 3"),
        ("exit 0", "ended without an ending"),
        ("segfault", "exited with signal 11"),
        ("raise", "exited with status 1"),
    ],
)
async def test_a_suspect_that_dies_is_reported_with_its_cause(does: str, cause: str, tmp_path: Path) -> None:
    async with suspects(does, tmp_path) as alone:
        with pytest.raises(SuspectDied, match=cause):
            await alone.execute(await held(), renewing=lambda: None)


async def test_a_suspect_renews_its_own_lease_and_no_other(tmp_path: Path) -> None:
    holding = await held()
    async with suspects("wait", tmp_path, timedelta(seconds=0.3)) as alone:
        executing = asyncio.create_task(alone.execute(holding, renewing=lambda: None))
        log = tmp_path / "heartbeats"
        await until(lambda: log.exists() and len(log.read_text().splitlines()) >= 3)
        holding.draining = True
        holding.changed.set()
        assert await executing is Ending.HANDED_BACK
    pid = (tmp_path / "pid").read_text()
    assert set(log.read_text().splitlines()) == {f"{pid} {holding.lease.run.run_id}"}


async def test_a_cancelled_execution_leaves_no_process_even_when_its_loop_is_blocked(tmp_path: Path) -> None:
    async with suspects("block", tmp_path) as alone:
        executing = asyncio.create_task(alone.execute(await held(), renewing=lambda: None))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        executing.cancel()
        pid = int((tmp_path / "pid").read_text())
        await until(lambda: gone(pid))


async def test_many_suspects_execute_at_once_and_only_one_of_them_dies(tmp_path: Path) -> None:
    async with suspects("wait", tmp_path) as alone:
        holdings = [await held() for _ in range(8)]
        executing = [asyncio.create_task(alone.execute(holding, renewing=lambda: None)) for holding in holdings]
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        done, rest = await asyncio.wait(executing, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        with pytest.raises(SuspectDied, match="signal 9"):
            done.pop().result()
        for holding in holdings:
            holding.draining = True
            holding.changed.set()
        assert set(await asyncio.gather(*rest)) == {Ending.HANDED_BACK}


async def test_a_server_forked_beforehand_is_used_and_replaced_when_it_has_ended(tmp_path: Path) -> None:
    async with suspects("complete", tmp_path, forked=(forked := fork_server())) as alone:
        assert await alone.execute(await held(), renewing=lambda: None) is Ending.COMPLETED
        assert parent_of(tmp_path) == forked.pid
        os.kill(forked.pid, signal.SIGKILL)
        await until(lambda: gone(forked.pid))
        assert await alone.execute(await held(), renewing=lambda: None) is Ending.COMPLETED
        assert parent_of(tmp_path) != forked.pid


async def test_a_suspects_process_is_in_its_workers_session_and_out_of_its_terminals_reach(tmp_path: Path) -> None:
    for forked in (None, fork_server()):
        async with suspects("complete", tmp_path, forked=forked) as alone:
            await alone.execute(await held(), renewing=lambda: None)
        assert int((tmp_path / "session").read_text()) == os.getsid(0)
        assert int((tmp_path / "group").read_text()) != os.getpgid(0)


async def test_a_server_forked_beforehand_ends_with_the_worker_that_never_used_it(tmp_path: Path) -> None:
    async with suspects("complete", tmp_path, forked=(forked := fork_server())):
        assert not gone(forked.pid)
    assert reaped(forked.pid)


def reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def parent_of(folder: Path) -> int:
    return int((folder / "parent").read_text())


@pytest.mark.spec("QUE-6")
async def test_a_suspects_death_is_its_runs_crash_at_once_and_nobody_elses(tmp_path: Path) -> None:
    store = memory()
    executions = Executions(store, stay=True)
    neighbour = await submit(store)
    async with suspects("exit", tmp_path) as alone, running(make_pool(store, executions, suspect_runner=alone)):
        await until(lambda: executions.runs == [neighbour])
        poison = await submit(store)
        await make_suspect(store, executions, poison)
        async with asyncio.timeout(20):
            while (await read(store, poison)).lease_expirations < 3:  # noqa: ASYNC110 - the store has no signal
                await asyncio.sleep(0.01)
        run = await read(store, poison)
        assert run.status is RunStatus.FAILED
        assert [failure["reason"] for failure in run.attempt_failures[1:]] == ["exited with status 3"] * 2
        assert await status(store, neighbour) is RunStatus.RUNNING
        assert (await read(store, neighbour)).lease_expirations == 0


async def make_suspect(store: MemoryStore, executions: Executions, run: RunRef) -> None:
    """Its first holder dies: the lease expires and is swept."""
    await until(lambda: run in executions.runs)
    lease = executions.of(run).lease
    let_expire(store, lease)
    (expired,) = [each for each in await store.run_sweeps.expired_leases(10) if each.run == run]
    await store.run_sweeps.reclaim(expired)
    executions.of(run).lost = True
    executions.of(run).changed.set()


WORKER = """
import asyncio, os, sys, time
from pathlib import Path
sys.path[:0] = [{tests!r}, {here!r}]
from test_a_suspect_dies_alone import held, spec
from wakeful.actors.suspects import Suspects
from datetime import timedelta

async def main():
    suspects = Suspects(spec({does!r}, Path({folder!r})), lease=timedelta(seconds=30))
    await suspects.execute(await held(), renewing=lambda: None)

asyncio.run(main())
"""


@pytest.mark.parametrize("does", ["wait", "block"])
async def test_a_suspect_dies_with_its_parent(does: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = WORKER.format(tests=str(here.parent), here=str(here), does=does, folder=str(tmp_path))
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=subprocess.DEVNULL)
    try:
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 90)
        pid = int((tmp_path / "pid").read_text())
    finally:
        worker.kill()
        await worker.wait()
    await until(lambda: gone(pid))

"""However a process ends, the servers it started end too, and no others."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
import redis

from wakeful.embedded import EmbeddedPostgres, EmbeddedValkey

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

OWNER = """
import os, sys, time
from wakeful.embedded import EmbeddedPostgres, EmbeddedValkey
database, cache = EmbeddedPostgres().start(), EmbeddedValkey().start()
print(database.pid, database.log.parent, cache.pid, cache.log.parent, flush=True)
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        database.stop()  # not the owner: changes nothing
        time.sleep(3600)
    print(child, flush=True)
sys.stdin.readline()
"""


class Owner:
    """A process of its own that owns two servers."""

    def __init__(self, how: str = "plain") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        words = self.read().split()
        self.servers = [int(words[0]), int(words[2])]
        self.folders = [Path(words[1]), Path(words[3])]

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def family(pid: int) -> list[int]:
    """A process, its parent (the guardian) and its children."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, parent, *map(int, children)]


def wait_until_gone(pids: list[int], folders: list[Path]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids) or any(path.exists() for path in folders):
        assert time.monotonic() < deadline, (pids, folders)
        time.sleep(0.02)  # processes that are not our children announce nothing


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_leaves_no_process_and_no_folder_and_a_server_beside_it_untouched(number: int) -> None:
    with EmbeddedPostgres() as beside, EmbeddedValkey() as cache:
        pids = [beside.pid, cache.pid]
        owner = Owner()
        running = [pid for server in owner.servers for pid in family(server)]
        assert len(running) > 5
        owner.end(number)
        wait_until_gone(running, owner.folders)
        assert [beside.pid, cache.pid] == pids
        with psycopg.connect(beside.dsn()) as connection, redis.Redis.from_url(cache.url) as client:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert client.ping()


def test_a_forked_child_of_the_owner_neither_stops_the_servers_nor_keeps_them_alive() -> None:
    owner = Owner("fork")
    child = int(owner.read())
    try:
        assert all(Path(f"/proc/{pid}").exists() for pid in owner.servers)
        running = [pid for server in owner.servers for pid in family(server)]
        owner.end(signal.SIGKILL)
        wait_until_gone(running, owner.folders)
        assert Path(f"/proc/{child}").exists()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_killed_guardian_takes_its_server_with_it() -> None:
    with EmbeddedPostgres() as server:
        running = family(server.pid)
        os.kill(running[1], signal.SIGKILL)
        wait_until_gone([running[0], *running[2:]], [])
        folder = server.log.parent
    assert not folder.exists()


def test_a_ctrl_c_in_the_terminal_reaches_the_owner_and_not_its_servers() -> None:
    with EmbeddedPostgres() as server:
        assert os.getsid(server.pid) != os.getsid(0)

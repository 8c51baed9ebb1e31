"""Children of a stack die with their owner, stopped ones too, and not with the thread that happened to start them."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.database import Database
from support.processes import until_fact

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

OWNER = """
    import json, os, signal, sys, threading, time
    from pathlib import Path
    from wakeful.bootstrap.children import Child

    given = json.loads(sys.argv[1])
    child = Child(["scheduler"], environment=given["environment"], log=Path(given["log"]), name="scheduler")
    starting = threading.Thread(target=lambda: (child.start(), child.wait_ready()))
    starting.start()
    starting.join()
    time.sleep(0.5)  # the kernel ends the thread a moment after it was joined
    assert child.running, "it died with the thread that started it"
    os.kill(child.pid, signal.SIGSTOP)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


def started(given: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(OWNER), given]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's service is Linux's")
async def test_a_stopped_child_dies_with_its_killed_owner(database: Database, tmp_path: Path) -> None:
    environment = {"WAKEFUL_DATABASE_URL": database.dsn, "WAKEFUL_ROLE_PREFIX": database.role_prefix}
    given = json.dumps({"environment": environment, "log": str(tmp_path / "log")})
    owner = started(given)
    try:
        assert owner.stdout is not None
        line = owner.stdout.readline()
        assert line, (tmp_path / "log").read_text()
        child = int(line)
        await until_fact(lambda: state(child) == "T", "the child is stopped")
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    await until_fact(lambda: state(child) in {"Z", "X", "gone"}, "the child is gone", 20)

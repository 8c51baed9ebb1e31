"""`wakeful` and `python -m wakeful` as programs of their own."""

import subprocess
import sys

import pytest
from support.command_line import CommandLine

pytestmark = pytest.mark.timeout(300)


def test_python_m_wakeful_prints_its_version_and_exits_0() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wakeful", "--version"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout.count("."), done.stderr) == (0, 2, "")


def test_an_unreachable_database_ends_the_program_with_6_and_one_line() -> None:
    line = CommandLine({"WAKEFUL_DATABASE_URL": "postgresql://127.0.0.1:1/nowhere"})
    done = subprocess.run(
        [sys.executable, "-m", "wakeful", "run", "list"],
        env=line.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.startswith("error: the database cannot be reached")
    assert "Traceback" not in done.stderr

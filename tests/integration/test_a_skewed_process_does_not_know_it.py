"""The wrong clock of a storm's worker is wrong for everything in the process, and for nothing else."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wakeful.faults.storm.skew import skewed

ASKING = """
import json, time
from datetime import UTC, datetime
import wakeful.runtime.executor
print(json.dumps([time.time(), datetime.now(UTC).timestamp(), time.time_ns() / 1e9, time.monotonic()]))
"""


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 0.0])
def test_every_clock_but_the_monotonic_one_is_off_by_as_much(tmp_path: Path, seconds: float) -> None:
    with skewed(tmp_path / "clock", seconds):
        ran = subprocess.run([sys.executable, "-c", ASKING], check=True, capture_output=True, text=True)
    *clocks, monotonic = json.loads(ran.stdout)
    for clock in clocks:
        assert abs(clock - time.time() - seconds) < 60
    assert abs(monotonic - time.monotonic()) < 60

"""All recorded conversations through real servers and processes: `make replay`."""

from pathlib import Path

import pytest
from support.commands import wakeful

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def files(trajectories: Path) -> list[Path]:
    return sorted(trajectories.glob("*.jsonl"))


def test_all_recordings_come_out_as_they_went_in(files: list[Path]) -> None:
    ran = wakeful("replay", *files, "--json", timeout_seconds=1700)
    assert ran.code == 0, ran.out + ran.err
    report = ran.json
    assert (report["conversations"], report["identical"], report["skipped"]) == (313, 313, {})
    assert report["effects"] == report["calls"] == 2903


def test_all_recordings_survive_kills_lost_checkpoints_and_an_emptied_broker(files: list[Path]) -> None:
    ran = wakeful(
        *("replay", *files, "--json", "--workers", 3, "--kill-every", 2, "--lose-checkpoints"),
        *("--flush-broker-every", 3, "--lease", 2, "--tool-delay", 0.02),
        timeout_seconds=1700,
    )
    assert ran.code == 0, ran.out + ran.err
    report = ran.json
    assert (report["conversations"], report["identical"], report["skipped"]) == (313, 313, {})
    assert (report["duplicate_effects"], report["lost_effects"]) == (0, 0)
    assert report["interrupted_runs"] >= 50
    assert report["checkpoints_deleted"] > 0
    assert report["broker_flushes"] > 0

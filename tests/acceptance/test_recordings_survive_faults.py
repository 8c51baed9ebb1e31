"""A sample of the recorded conversations through real servers and worker processes, in peace and under faults.

All of them are in tests/replay.
"""

import json
from pathlib import Path

import pytest
from support.commands import wakeful

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def files(trajectories: Path) -> list[Path]:
    return sorted(trajectories.glob("*.jsonl"))


def test_a_sample_comes_out_as_it_went_in(files: list[Path]) -> None:
    ran = wakeful("replay", *files, "--limit", 15, "--json")
    assert ran.code == 0, ran.out + ran.err
    report = ran.json
    assert (report["conversations"], report["identical"], report["skipped"]) == (15, 15, {})
    assert report["effects"] == report["calls"] > 0
    assert (report["kills"], report["interrupted_runs"], report["replayed"]) == (0, 0, 0)


def test_a_sample_survives_kills_lost_checkpoints_and_an_emptied_broker(files: list[Path]) -> None:
    ran = wakeful(
        *("replay", *files, "--json", "--limit", 40, "--workers", 3, "--kill-every", 2, "--seed", 7),
        *("--lose-checkpoints", "--flush-broker-every", 3, "--lease", 2, "--tool-delay", 0.05),
    )
    assert ran.code == 0, ran.out + ran.err
    report = ran.json
    assert (report["conversations"], report["identical"], report["different"]) == (40, 40, {})
    assert (report["duplicate_effects"], report["lost_effects"]) == (0, 0)
    for fault in ("kills", "interrupted_runs", "checkpoints_deleted", "broker_flushes"):
        assert report[fault] > 0, f"no fault of this kind landed: {report}"


def test_a_log_that_cannot_be_expressed_is_reported_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"id": "x", "messages": [{"role": "developer", "content": "hi"}]}) + "\n")
    ran = wakeful("replay", file, "--json")
    assert ran.code == 1
    assert ran.json["conversations"] == 0
    assert "role 'developer' is none of" in ran.json["skipped"]["x"]


def test_a_file_that_cannot_be_read_is_bad_usage(tmp_path: Path) -> None:
    ran = wakeful("replay", tmp_path / "none.jsonl")
    assert ran.code == 2
    assert "cannot read" in ran.err
    assert "Traceback" not in ran.err

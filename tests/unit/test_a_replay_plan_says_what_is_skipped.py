"""Choosing what is replayed: nothing is left out silently, and every process reads the same plan."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from wakeful.domain.errors import InvalidInput
from wakeful.domain.states import IdempotencyClass
from wakeful.faults.replay.plan import Plan, read_selection
from wakeful.faults.replay.report import Report
from wakeful.faults.replay.workload_file import read_workload, write_workload


def line(identity: str, *contents: str) -> dict[str, Any]:
    return {"id": identity, "messages": [{"role": "user", "content": content} for content in contents or ("hi",)]}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines), encoding="utf-8")
    return path


def test_what_cannot_be_expressed_is_skipped_with_its_reason(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", line("a"), line("b", "x\x00"), {"messages": []}, line("c"))
    selection = read_selection([file])
    assert [each["id"] for each in selection.lines] == ["a", "c"]
    assert set(selection.skipped) == {"b", "a.jsonl:3"}
    assert "NUL" in selection.skipped["b"]


def test_a_second_conversation_with_the_same_id_is_skipped(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.jsonl", line("a")), write(tmp_path / "b.jsonl", line("a"))
    assert read_selection([one, two]).skipped == {"a (b.jsonl:1)": "another conversation has this id"}


def test_a_limit_takes_conversations_evenly_from_all_files(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.jsonl", *(line(f"{name}{i}") for i in range(4))) for name in "ab"]
    assert [each["id"] for each in read_selection(files, limit=4).lines] == ["a0", "a2", "b0", "b2"]
    assert len(read_selection(files, limit=99).lines) == 8


def test_unicode_line_separators_stand_inside_a_line(tmp_path: Path) -> None:
    selection = read_selection([write(tmp_path / "a.jsonl", line("a", "one\u2028two\x85three"))])
    assert selection.lines[0]["messages"][0]["content"] == "one\u2028two\x85three"


@pytest.mark.parametrize("text", ["{", "[]", "7\n"])
def test_a_file_of_something_else_is_an_error_that_names_the_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(text)
    with pytest.raises(InvalidInput, match="line 1 is no JSON"):
        read_selection([file])


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        read_selection([tmp_path / "none.jsonl"])


def test_a_worker_reads_the_workload_that_was_planned(tmp_path: Path) -> None:
    called = {"id": "1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    second = {
        "id": "b é",
        "messages": [{"role": "user"}, {"role": "assistant", "tool_calls": [called]}],
    }
    plan = Plan(
        batch=uuid4(),
        lines=(line("a"), second),
        ledger=tmp_path / "ledger.sock",
        owners=tmp_path / "owners",
        tool_class=IdempotencyClass.READ_ONLY,
        tool_delay_seconds=0.5,
    )
    planned = plan.workload()
    write_workload(tmp_path / "workload.json", planned, plan.lines)
    read = read_workload(tmp_path / "workload.json")
    assert dict(read.recordings) == planned.recordings
    assert replace(read, recordings={}) == replace(planned, recordings={})
    assert planned.tools == ("t",)
    assert planned.runs == {each.run_id(0): (each.recording.id, 0) for each in plan.conversations()}


@pytest.mark.parametrize(
    "change",
    [
        {"identical": 1},
        {"different": {"a": "item 0"}},
        {"duplicate_effects": 1},
        {"lost_effects": 1},
        {"conversations": 0, "identical": 0},
    ],
)
def test_a_report_holds_only_when_nothing_is_wrong_and_something_was_replayed(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"conversations": 2, "identical": 2, "calls": 3, "effects": 3}
    assert Report(**good).holds
    assert not Report(**{**good, **change}).holds


def test_the_json_object_has_the_published_keys() -> None:
    assert list(Report().as_json()) == [
        "conversations",
        "identical",
        "different",
        "skipped",
        "calls",
        "effects",
        "replayed",
        "duplicate_effects",
        "lost_effects",
        "kills",
        "interrupted_runs",
        "checkpoints_deleted",
        "broker_flushes",
        "seconds",
    ]

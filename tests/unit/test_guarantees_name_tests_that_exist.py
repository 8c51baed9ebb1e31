"""The page of guarantees is held against the suite: what it names is there, and every line names something."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
NAMED = re.compile(r"`(test_\w+)`")


def in_the_suite() -> set[str]:
    found = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        found |= {file.stem, *re.findall(r"(?m)^(?:async )?def (test_\w+)", file.read_text("utf-8"))}
    return found


def test_every_test_it_names_exists() -> None:
    named = set(NAMED.findall(PAGE))
    assert len(named) > 40
    assert named - in_the_suite() == set()


def test_every_line_of_its_tables_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    promises = [row for row in rows if not row.startswith(("| fault", "|---"))]
    assert len(promises) > 15
    assert [row[:60] for row in promises if not NAMED.search(row)] == []


def test_every_command_it_tells_of_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"(?m)^make ([\w-]+)", PAGE):
        assert re.search(rf"(?m)^{target}:", makefile), target

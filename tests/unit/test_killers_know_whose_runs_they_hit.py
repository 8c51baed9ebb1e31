"""A kill is only fair when the killer knows what the worker holds, suspects' processes included."""

import os
from pathlib import Path
from uuid import uuid4

import pytest

from wakeful.faults.owners import OwnerNotes


def test_a_worker_and_its_suspects_processes_are_noted_under_the_workers_pid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getsid", lambda _: 100)
    monkeypatch.setattr(os, "getpid", lambda: 100)
    owner = uuid4()
    OwnerNotes(tmp_path).note(owner)
    monkeypatch.setattr(os, "getpid", lambda: 300)  # forked by a server in the worker's session
    OwnerNotes(tmp_path).note(owner)
    assert OwnerNotes(tmp_path).read() == {owner: frozenset({100, 300})}
    assert OwnerNotes(tmp_path).processes(owner) == (100, 300)


def test_a_suspects_process_alone_already_names_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getsid", lambda _: 100)
    monkeypatch.setattr(os, "getpid", lambda: 300)
    owner = uuid4()
    OwnerNotes(tmp_path).note(owner)
    assert 100 in OwnerNotes(tmp_path).read()[owner]

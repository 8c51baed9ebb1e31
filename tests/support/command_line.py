"""The command line as a person runs it: a process, its output, its exit code."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """The error of a command with --json: the last line of standard error."""
        found: dict[str, str] = json.loads(self.err.splitlines()[-1])["error"]
        return found


@dataclass(frozen=True)
class CommandLine:
    """`wakeful …` with these settings and none of the caller's."""

    settings: Mapping[str, str]

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WAKEFUL_")}
        path = os.pathsep.join(filter(None, [str(TESTS), kept.get("PYTHONPATH", "")]))
        return {**kept, "PYTHONPATH": path, **self.settings, **more}

    def __call__(self, *arguments: str, stdin: bytes = b"", **more: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "wakeful", *arguments],
            env=self.environment(**more),
            input=stdin,
            capture_output=True,
            timeout=90,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

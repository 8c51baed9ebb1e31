"""The command line as its users start it: a process."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Ran", "wakeful"]


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on standard output."""
        return json.loads(self.out)


def wakeful(*arguments: object, timeout_seconds: float = 300, cwd: Path | None = None) -> Ran:
    """`wakeful ARGUMENTS`, run to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "wakeful", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        cwd=cwd,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)

"""The command line as a person runs it: a process, its output, its exit code.

The process is forked from the test's own, where everything is imported already: a command then takes milliseconds to
start instead of the better part of a second.
"""

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import wakeful.persistence.overview
import wakeful.persistence.store  # noqa: F401 - imported before the fork
from wakeful.cli.main import main

TESTS = Path(__file__).resolve().parents[1]
INTERNAL_ERROR = 70


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
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                _become(arguments, self.environment(**more), (given, out, err))
            _, status = os.waitpid(pid, 0)
            out.seek(0)
            err.seek(0)
            said = Said(os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode())
        assert "Traceback" not in said.err, said.err
        return said


def _become(arguments: tuple[str, ...], environment: Mapping[str, str], files: tuple[IO[bytes], ...]) -> NoReturn:
    """Run the command in the forked child; never returns into the test."""
    code: object = INTERNAL_ERROR
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process ends
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["wakeful", *arguments]
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)

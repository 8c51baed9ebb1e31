"""Starting and stopping the ledger's process."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from wakeful.domain.errors import WakefulError
from wakeful.faults.ledger.book import Book, read_book
from wakeful.faults.ledger.client import LedgerClient

__all__ = ["LedgerProcess"]


class LedgerProcess:
    """The ledger on a Unix socket in a private folder; it ends with this process, also when that is killed.

    Starting twice and stopping twice change nothing. Without `file` the book is temporary and goes at the stop;
    a file that exists already is continued.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._given = file
        self._folder: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Return when it takes requests. Raises WakefulError when it cannot start."""
        if self._process is None:
            self._folder = Path(tempfile.mkdtemp(prefix="wakeful-ledger-"))
            try:
                self._launch()
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Close its input and wait for its end; then remove the private folder."""
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def socket(self) -> Path:
        return self._running() / "ledger.sock"

    @property
    def file(self) -> Path:
        return self._given or self._running() / "ledger.jsonl"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise WakefulError("the ledger is not running: call start() first")
        return self._process.pid

    def client(self) -> LedgerClient:
        return LedgerClient(self.socket)

    def read(self) -> Book:
        """What it has taken so far."""
        return read_book(self.file)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Path:
        if self._folder is None:
            raise WakefulError("the ledger is not running: call start() first")
        return self._folder

    def _launch(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        # A session of its own: an interrupt at the terminal is the owner's to handle, and the ledger ends with it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wakeful.faults.ledger", str(self.socket), str(self.file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if self._process.stdout is None or self._process.stdout.readline() != "ready\n":
            raise WakefulError("the effect ledger did not start: see its error output above")

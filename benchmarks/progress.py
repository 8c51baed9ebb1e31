"""Progress on standard error, so that standard output stays for the result."""

import sys
import time

__all__ = ["Progress"]


class Progress:
    """Says what is being measured and how it goes, one line per figure."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def begin(self, what: str) -> None:
        self._say(f"[{time.monotonic() - self._began:5.0f} s] {what}:")

    def step(self, text: str) -> None:
        self._say(f" {text}")

    def end(self) -> None:
        self._say("\n")

    def _say(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

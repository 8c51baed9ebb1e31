"""Waking a thread that waits on descriptors."""

import contextlib
import os

__all__ = ["Bell"]


class Bell:
    """A descriptor that is readable from the first `ring` on. Rings from any thread; closing twice is fine."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._closed = False

    def ring(self) -> None:
        if not self._closed:
            with contextlib.suppress(BlockingIOError):  # full: it rings already
                os.write(self._write, b"!")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self.descriptor)
            os.close(self._write)

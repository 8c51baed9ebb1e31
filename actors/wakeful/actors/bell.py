"""Waking a thread that waits on descriptors."""

import contextlib
import os

__all__ = ["Bell"]


class Bell:
    """A descriptor that is readable from `ring` until `silence`. Rings from any thread, not beside `close`, and does
    nothing after it; closing twice is fine."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        for descriptor in (self.descriptor, self._write):
            os.set_blocking(descriptor, False)
        self._closed = False

    def ring(self) -> None:
        if not self._closed:
            with contextlib.suppress(BlockingIOError):  # full: it rings already
                os.write(self._write, b"!")

    def silence(self) -> None:
        """Call it before looking at what it rang for."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self.descriptor)
            os.close(self._write)

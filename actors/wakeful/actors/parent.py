"""Dying with one's parent, by the kernel's doing."""

import ctypes
import signal
import sys

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """From now on this process is killed when the thread that forked it ends, also while it is stopped or its
    interpreter does not run. Only on Linux; a parent that is gone already has to be noticed by other means."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

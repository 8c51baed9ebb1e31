"""Telling child processes what they are for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_environment"]


@contextmanager
def in_environment(name: str, value: str) -> Iterator[None]:
    """A variable that processes started in the block inherit. Not for several threads at once."""
    previous = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if previous is None:
            del os.environ[name]
        else:
            os.environ[name] = previous

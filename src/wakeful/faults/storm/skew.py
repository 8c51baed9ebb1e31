"""A process whose clock is wrong, made so that nothing in it can know.

A `sitecustomize` on the process's path replaces the clocks of `time` and `datetime` before any other module sees them.
The monotonic clock stays: it is not set by anybody.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wakeful.faults.environment import in_environment

__all__ = ["SKEW_VARIABLE", "skewed"]

SKEW_VARIABLE = "FAULTS_CLOCK_SKEW_SECONDS"

_SITE = f'''
import datetime as _datetime
import os as _os
import time as _time

_skew = float(_os.environ.get("{SKEW_VARIABLE}", "0"))
if _skew:
    _now, _now_ns, _real = _time.time, _time.time_ns, _datetime.datetime
    _time.time = lambda: _now() + _skew
    _time.time_ns = lambda: _now_ns() + int(_skew * 1e9)

    class datetime(_real):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(_time.time(), tz)

        @classmethod
        def utcnow(cls):
            return cls.fromtimestamp(_time.time(), _datetime.timezone.utc).replace(tzinfo=None)

        @classmethod
        def today(cls):
            return cls.fromtimestamp(_time.time())

    datetime.__module__, datetime.__qualname__ = "datetime", "datetime"
    _datetime.datetime = datetime
'''


@contextmanager
def skewed(folder: Path, seconds: float) -> Iterator[Mapping[str, str]]:
    """Processes started in the block believe that it is so much later."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    given = {SKEW_VARIABLE: str(seconds), "PYTHONPATH": path}
    with ExitStack() as stack:
        for name, value in given.items():
            stack.enter_context(in_environment(name, value))
        yield given

"""Saying once that something is out of reach, and once that it is back."""

import time

import structlog

__all__ = ["Outage"]

_log = structlog.get_logger(__name__)


class Outage:
    """The state of one peer: `<what>.unreachable` when it goes, `<what>.reachable` when it is back."""

    def __init__(self, what: str, **facts: object) -> None:
        self._what, self._facts = what, facts
        self._since: float | None = None

    @property
    def lasting(self) -> bool:
        return self._since is not None

    def began(self, error: BaseException) -> None:
        """Called for every failure; only the first is logged. Of the error only the class: its text may hold an
        address."""
        if self._since is None:
            self._since = time.monotonic()
            _log.warning(f"{self._what}.unreachable", error=type(error).__name__, **self._facts)

    def over(self) -> None:
        """Called for every success."""
        if self._since is not None:
            seconds = round(time.monotonic() - self._since, 1)
            self._since = None
            _log.info(f"{self._what}.reachable", outage_seconds=seconds, **self._facts)

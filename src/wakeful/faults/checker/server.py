"""What a server went through between two looks: deadlocks, and what was left open."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from wakeful.faults.checker.findings import Finding

__all__ = ["ServerWatch"]

_DEADLOCKS = b"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
_CLIENTS = b"""
SELECT pid, coalesce(state, ''), coalesce(extract(epoch FROM clock_timestamp() - state_change), 0)::float8,
       left(query, 80)
  FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
IDLE_SECONDS = 2.0
"""A transaction idle for longer was left open: between two statements of one there is no wait for the outside."""
SETTLE_SECONDS = 5.0
"""A backend outlives its client by a moment, and statistics are written by and by."""


@dataclass
class ServerWatch:
    """Looks at one database. The statistics of a server that was killed begin anew, so look again after a restart."""

    dsn: str
    patience_seconds: float = SETTLE_SECONDS
    _deadlocks: int = 0
    _clients: int = 0

    def begin(self) -> None:
        """What is there now is nobody's fault, and the number of connections to come back to."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            self._deadlocks = _number(connection, _DEADLOCKS)
            self._clients = len(connection.execute(_CLIENTS).fetchall())

    def findings(self, *, at_rest: bool) -> Iterator[Finding]:
        """What has happened since. `at_rest`: everybody has gone, so every connection should be too."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            deadlocks = _number(connection, _DEADLOCKS) - self._deadlocks
            if deadlocks > 0:
                yield Finding("no deadlock", "server", f"{deadlocks}")
            for pid, state, seconds, query in connection.execute(_CLIENTS).fetchall():
                if state.startswith("idle in transaction") and seconds > IDLE_SECONDS:
                    yield Finding("no transaction is left open", f"backend {pid}", f"{seconds:.1f} s after {query!r}")
            if at_rest and (left := self._left(connection)) > 0:
                yield Finding("every connection is given back", "server", f"{left} more than before")

    def _left(self, connection: psycopg.Connection[Any]) -> int:
        deadline = time.monotonic() + self.patience_seconds
        while (left := len(connection.execute(_CLIENTS).fetchall()) - self._clients) > 0:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)  # a backend's exit sends nothing that could be waited for
        return left


def _number(connection: psycopg.Connection[Any], statement: bytes) -> int:
    row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0

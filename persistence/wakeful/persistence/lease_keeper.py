"""Leases on PostgreSQL, from the heartbeat's thread: its own connection, on the direct address, as the worker role.

See `wakeful.domain.ports.leases` for what is authoritative and how long a holder may trust itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from wakeful.domain.errors import Unavailable
from wakeful.domain.ports.leases import Heartbeat
from wakeful.domain.runs import Lease
from wakeful.persistence.answering import SyncAnsweringConnection, answer_limit
from wakeful.persistence.connecting import ConnectionSettings, sync_connection
from wakeful.persistence.errors import Translated
from wakeful.persistence.mappers.claims import claim_of
from wakeful.persistence.presence import BACKEND, channel_of, mark_statement
from wakeful.persistence.readable import readable

__all__ = ["PostgresLeaseKeeper"]

HEARTBEAT = files("wakeful.persistence").joinpath("heartbeat.sql").read_bytes()
_LIMITS = b"SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false)"
SHORTEST_WAIT = timedelta(milliseconds=50)


class PostgresLeaseKeeper:
    """Connects when it first has to, and again after the connection was lost. For one thread at a time."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = replace(settings, application_name=f"{settings.application_name} heartbeat")
        self._connection: SyncAnsweringConnection | None = None
        self._limit: timedelta | None = None
        self._called = False
        self._closed = False

    def heartbeat(self, owner: UUID, leases: Sequence[Lease], *, lease: timedelta) -> Heartbeat:
        rows = self._rows(
            HEARTBEAT,
            {
                "owner": owner,
                "tenants": [held.run.tenant_id for held in leases],
                "runs": [held.run.run_id for held in leases],
                "epochs": [held.epoch for held in leases],
                "lease": lease,
            },
            owner=owner,
            within=lease / 4,
        )
        renewed = frozenset(row["id"] for row in rows if row["renewed"])
        return Heartbeat(
            renewed=renewed,
            lost=frozenset(held.run.run_id for held in leases) - renewed,
            adopted=tuple(claim_of(row, owner) for row in rows if not row["renewed"]),
            cancel_requested=frozenset(row["id"] for row in rows if row["cancel"]),
        )

    def wait(self, seconds: float, wake: int) -> bool:
        connection = self._connection
        if connection is None or self._called:
            readable(0 if self._called else seconds, wake)
            return self._take_call()
        if connection.fileno() not in readable(seconds, wake, connection.fileno()):
            return False
        try:
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                self._called = True
        except psycopg.Error:
            connection.close()
            self._connection = None
            return True
        return self._take_call()

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _take_call(self) -> bool:
        called, self._called = self._called, False
        return called

    def _rows(
        self, statement: bytes, parameters: Any, *, owner: UUID, within: timedelta | None
    ) -> list[dict[str, Any]]:
        """`within` bounds every wait, so that a lock or a slow server costs one heartbeat and not the lease."""
        if self._closed:
            raise Unavailable("this lease keeper was closed: make a new one")
        try:
            # A renewal that may or may not have happened counts as none: the holder's own deadline is the earlier.
            with Translated(write=False):
                connection = self._connected(owner, within)
                with connection.cursor(row_factory=dict_row) as cursor:
                    return cursor.execute(statement, parameters).fetchall()
        except BaseException:
            self._drop_broken()
            raise

    def _connected(self, owner: UUID, within: timedelta | None) -> SyncAnsweringConnection:
        if self._connection is None:
            self._connection, self._limit = sync_connection(self._settings), None
            self._appear(self._connection, owner)
        if within is not None and within != self._limit:
            milliseconds = str(round(max(within, SHORTEST_WAIT).total_seconds() * 1000))
            self._connection.execute(_LIMITS, (milliseconds, milliseconds))
            self._connection.answer_within = answer_limit(max(within, SHORTEST_WAIT))
            self._limit = within
        return self._connection

    def _appear(self, connection: SyncAnsweringConnection, owner: UUID) -> None:
        """Before the first heartbeat on it, so that no lease is renewed by an owner that counts as gone."""
        row = connection.execute(BACKEND).fetchone()
        if row is None or row[0] != connection.info.backend_pid:
            return  # a pooler: its connections say nothing about ours
        connection.execute(mark_statement(owner))
        # What arrives while a statement is under way is not seen by `wait`.
        connection.add_notify_handler(self._note_call)
        connection.execute(f"LISTEN {channel_of(owner)}".encode())

    def _note_call(self, _notification: psycopg.Notify) -> None:
        self._called = True

    def _drop_broken(self) -> None:
        connection = self._connection
        if connection is not None and connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
            self._connection = None

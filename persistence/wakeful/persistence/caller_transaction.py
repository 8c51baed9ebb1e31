"""Submitting inside a transaction of the caller's: the run is queued exactly when that commits.

The submit function runs in a savepoint, so a refusal leaves the caller's transaction as it was. From then until
the caller's COMMIT the session's row stays locked: everything else in that session waits.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from wakeful.domain.errors import InvalidInput, NotAllowed, SchemaError, Unavailable, WakefulError
from wakeful.domain.runs import Submission, Submitted
from wakeful.persistence.errors import Translated, refused_submit
from wakeful.persistence.mappers.submissions import submission_parameters, submitted_of
from wakeful.persistence.revision import EXPECTED_REVISION
from wakeful.persistence.run_queue import SUBMIT

__all__ = ["LOCK_TIMEOUT", "submit_in"]

LOCK_TIMEOUT = timedelta(seconds=5)
"""How long the caller's transaction, and every lock it holds, waits for the session's row; a shorter `lock_timeout` of
the caller's own stays."""

Driver = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]

_FACTS = b"""
SELECT current_setting('transaction_isolation'), current_user::text,
       (SELECT setting::integer FROM pg_catalog.pg_settings WHERE name = 'lock_timeout')
"""
_SET_LOCK_TIMEOUT = b"SELECT set_config('lock_timeout', %s, true)"
_SAVE, _RELEASE = b"SAVEPOINT wakeful_submit", b"RELEASE SAVEPOINT wakeful_submit"
_UNDO = b"ROLLBACK TO SAVEPOINT wakeful_submit"


async def submit_in(connection: Any, submission: Submission, *, lock_timeout: timedelta = LOCK_TIMEOUT) -> Submitted:
    """Queue the run as part of the caller's open transaction; nothing is committed and nothing woken here.

    `connection` is a psycopg Connection or AsyncConnection, or an SQLAlchemy AsyncConnection or AsyncSession on
    psycopg. Raises InvalidInput for another one, for one without a transaction, and for an isolation level other than
    READ COMMITTED; NotAllowed when its role may not submit; Unavailable when the session stays locked; and what
    `RunQueue.submit` refuses. After each of them the transaction is usable and unchanged.
    """
    parameters = submission_parameters(submission)
    own = _Statements(await _driver_of(connection))
    own.check_transaction()
    isolation, user, before_ms = await own.row(_FACTS)
    if isolation != "read committed":
        raise InvalidInput(
            f"submit(connection=…) needs a READ COMMITTED transaction, this one is {isolation.upper()}: an older "
            "snapshot cannot see what it has to judge by. Begin another transaction for it"
        )
    ours_ms = round(lock_timeout.total_seconds() * 1000)
    wait_ms = min(before_ms or ours_ms, ours_ms)
    await own.row(_SAVE)
    try:
        await own.row(_SET_LOCK_TIMEOUT, [f"{wait_ms}ms"])
        with Translated(write=False, refusal=_refused(submission, user, wait_ms)):
            row = await own.row(SUBMIT, parameters)
        # RELEASE would keep the setting for the rest of the caller's transaction.
        await own.row(_SET_LOCK_TIMEOUT, [f"{before_ms}ms"])
    except Exception:
        await own.undo()
        raise
    await own.row(_RELEASE)
    return submitted_of(submission, row)


@dataclass(frozen=True, slots=True)
class _Statements:
    """Single statements on the caller's connection, whatever its row factory and whether it awaits."""

    driver: Driver

    def check_transaction(self) -> None:
        status = self.driver.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise InvalidInput("the transaction of this connection has failed: roll it back first")
        if status == TransactionStatus.IDLE and self.driver.autocommit:
            raise InvalidInput("this connection has no open transaction (it is in autocommit): begin one first")
        if status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
            raise InvalidInput("this connection is busy or closed: give one with an open transaction")

    async def row(self, statement: bytes, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
        if isinstance(self.driver, psycopg.AsyncConnection):
            return await self._awaited(self.driver, statement, parameters)
        return await asyncio.to_thread(self._blocking, self.driver, statement, parameters)

    async def undo(self) -> None:
        """Back to the savepoint. A connection that is gone has nothing left to undo."""
        if not self.driver.closed:
            await self.row(_UNDO)
            await self.row(_RELEASE)

    @staticmethod
    async def _awaited(
        driver: psycopg.AsyncConnection[Any], statement: bytes, parameters: Sequence[Any]
    ) -> tuple[Any, ...]:
        async with driver.cursor(row_factory=tuple_row) as cursor:
            # Never prepared: there may be a pooler, and the caller's statements are not ours to crowd out.
            await cursor.execute(statement, parameters, prepare=False)
            return (await cursor.fetchone() or ()) if cursor.description else ()

    @staticmethod
    def _blocking(driver: psycopg.Connection[Any], statement: bytes, parameters: Sequence[Any]) -> tuple[Any, ...]:
        with driver.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(statement, parameters, prepare=False)
            return (cursor.fetchone() or ()) if cursor.description else ()


async def _driver_of(connection: Any) -> Driver:
    if isinstance(connection, AsyncSession):
        connection = await connection.connection()
    if isinstance(connection, AsyncConnection):
        connection = (await connection.get_raw_connection()).driver_connection
    if isinstance(connection, psycopg.AsyncConnection | psycopg.Connection):
        return connection
    raise InvalidInput(
        f"submit(connection=…) takes a psycopg Connection or AsyncConnection, or an SQLAlchemy AsyncConnection or "
        f"AsyncSession on psycopg, not {type(connection).__module__}.{type(connection).__name__}"
    )


def _refused(submission: Submission, user: str, wait_ms: int) -> Callable[[psycopg.Error], WakefulError | None]:
    refused = refused_submit(submission)

    def known(error: psycopg.Error) -> WakefulError | None:
        match error:
            case psycopg.errors.LockNotAvailable():
                return Unavailable(
                    f"session {submission.session_id} stayed locked for {wait_ms / 1000:g} s: nothing was "
                    "done, try again"
                )
            case psycopg.errors.InsufficientPrivilege():
                return NotAllowed(
                    f"role {user} may not submit ({error.diag.message_primary}): grant it the app role that "
                    "`wakeful db check` names, for example GRANT wakeful_<database>_app TO it"
                )
            case psycopg.errors.UndefinedFunction() | psycopg.errors.InvalidSchemaName():
                return SchemaError(
                    "the database of this connection holds no Wakeful schema of this release: run `wakeful db upgrade`",
                    current=None,
                    expected=EXPECTED_REVISION,
                )
            case _:
                return refused(error)

    return known

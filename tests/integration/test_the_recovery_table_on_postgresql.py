"""Rows of the recovery table on PostgreSQL: the same decisions, the same ends."""

from collections.abc import AsyncIterator

import pytest
from support.database import Database
from support.recovery_checking import held
from support.recovery_rows import ROWS

from wakeful.persistence.memory import MemoryStore
from wakeful.persistence.store import Addresses, PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.gate("crash_recovery")]

NAMES = [
    "own batch, partly answered",
    "a newer turn supersedes the batch and its continuation",
    "a running call of an older turn",
    "started calls of every class, no checkpoint",
    "a final reply after a batch, no checkpoint",
    "no rows, no watermark, fitted to the run's count",
    "a refusal missing from the log",
    "a saved batch is not fitted again",
    "no watermark, own batch not counted",
    "partly answered without rows: the guards were passed",
    "no rows, in the step kept for an answer",
    "a question: answered in the gap as the last",
    "a child run: open",
]


@pytest.fixture
async def store(database: Database) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(Addresses(app=database.dsn), role_prefix=database.role_prefix)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


@pytest.mark.spec("REC-1", "REC-2", "REC-3", "REC-4", "REC-5", "REC-6", "REC-7", "REC-8", "UPC-2")
async def test_rows_of_the_table_hold_on_postgresql(store: PostgresStore) -> None:
    rows = {row.name: row for row in ROWS}
    for name in NAMES:
        await held(store, MemoryStore(), rows[name])

"""`submit(connection=…)`: queued exactly when the caller commits, and a refusal leaves the transaction usable."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from support.database import Database
from support.desk import Wakes

from wakeful.bootstrap import build
from wakeful.bootstrap.settings import Settings, given_settings
from wakeful.client import Backend, RunStatus, SessionHandle, Wakeful
from wakeful.domain.errors import InvalidInput, NotAllowed, NotFound, SessionBusy, SessionClosed, Unavailable
from wakeful.domain.runs import Submission
from wakeful.persistence.caller_transaction import submit_in

pytestmark = [pytest.mark.anyio, pytest.mark.spec("QUE-11")]


@pytest.fixture
def settings(database: Database, tmp_path: Any) -> Settings:
    return given_settings(
        database_url=database.dsn, role_prefix=database.role_prefix, artifacts_directory=tmp_path / "artifacts"
    )


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
async def wakeful(settings: Settings, wakes: Wakes) -> AsyncIterator[Wakeful]:
    async with build.open_client(settings) as parts:
        yield Wakeful(Backend(parts.store, wakes, parts.submit_in), tenant="acme", principal="ada")


@pytest.fixture
async def session(wakeful: Wakeful) -> SessionHandle:
    return await wakeful.sessions.create(agent="desk")


@pytest.fixture
async def caller(database: Database) -> AsyncIterator[psycopg.AsyncConnection[dict[str, Any]]]:
    """A connection of the caller's own, with a row factory of its own and a table of its own."""
    async with await psycopg.AsyncConnection.connect(database.dsn, row_factory=dict_row) as connection:
        await connection.execute("CREATE TABLE orders (number int)")
        await connection.commit()
        yield connection


async def runs(wakeful: Wakeful) -> list[RunStatus]:
    return [run.status for run in await wakeful.runs.list()]


async def test_the_run_is_queued_when_the_caller_commits_and_nobody_is_woken(
    wakeful: Wakeful, session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]], wakes: Wakes
) -> None:
    await caller.execute("INSERT INTO orders VALUES (1)")
    run = await session.submit("hello", key="order-1", connection=caller)
    assert await runs(wakeful) == []
    await caller.commit()
    assert (await run.read()).status is RunStatus.QUEUED
    assert wakes.given == []
    assert [event.type for event in await run.history()] == ["user.message.received", "run.queued"]
    assert (await session.submit("hello", key="order-1")).id == run.id


async def test_the_run_is_never_there_when_the_caller_rolls_back(
    wakeful: Wakeful, session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]]
) -> None:
    run = await session.submit("hello", key="order-1", connection=caller)
    await caller.rollback()
    with pytest.raises(NotFound):
        await run.read()
    assert (await session.submit("hello", key="order-1")).created


async def test_a_refusal_leaves_the_callers_transaction_as_it_was(
    wakeful: Wakeful, session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]]
) -> None:
    await session.submit("hello")
    await caller.execute("SET LOCAL lock_timeout = '7s'")
    await caller.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(SessionBusy):
        await session.submit("another", connection=caller)
    row = await (
        await caller.execute(
            "SELECT count(*) AS orders, current_setting('lock_timeout') AS waits, "
            "coalesce(current_setting('wakeful.tenant', true), '') AS tenant FROM orders"
        )
    ).fetchone()
    assert row == {"orders": 1, "waits": "7s", "tenant": ""}
    await caller.commit()
    assert len(await runs(wakeful)) == 1


async def test_after_a_submit_the_callers_settings_are_as_they_were(
    session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]]
) -> None:
    await session.submit("hello", connection=caller)
    row = await (await caller.execute("SELECT current_setting('lock_timeout') AS waits")).fetchone()
    assert row == {"waits": "0"}


async def test_a_closed_session_is_refused_inside_the_transaction_too(
    session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]]
) -> None:
    await session.close()
    with pytest.raises(SessionClosed):
        await session.submit("hello", connection=caller)


async def test_a_blocking_connection_may_be_given(wakeful: Wakeful, session: SessionHandle, database: Database) -> None:
    with psycopg.connect(database.dsn) as connection:
        await session.submit("hello", connection=connection)
        connection.commit()
    assert await runs(wakeful) == [RunStatus.QUEUED]


async def test_sqlalchemys_session_and_connection_may_be_given(
    wakeful: Wakeful, session: SessionHandle, database: Database
) -> None:
    engine = create_async_engine(database.dsn.replace("postgresql://", "postgresql+psycopg://"))
    try:
        async with AsyncSession(engine) as orm:
            await orm.execute(text("CREATE TABLE orders (number int)"))
            await session.submit("hello", connection=orm)
            await orm.rollback()
        assert await runs(wakeful) == []
        async with engine.begin() as connection:
            await session.submit("hello", connection=connection)
        assert await runs(wakeful) == [RunStatus.QUEUED]
    finally:
        await engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_another_isolation_level_is_refused(
    session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]], level: str
) -> None:
    await caller.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
    with pytest.raises(InvalidInput, match=level):
        await session.submit("hello", connection=caller)
    assert caller.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


async def test_a_connection_without_a_transaction_is_refused(session: SessionHandle, database: Database) -> None:
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as connection:
        with pytest.raises(InvalidInput, match="begin one first"):
            await session.submit("hello", connection=connection)
        async with connection.transaction():
            assert (await session.submit("hello", connection=connection)).created


async def test_a_failed_transaction_and_another_object_are_refused(
    session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]]
) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await caller.execute("SELECT 1 / 0")
    with pytest.raises(InvalidInput, match="roll it back"):
        await session.submit("hello", connection=caller)
    with pytest.raises(InvalidInput, match=r"not builtins\.str"):
        await session.submit("hello", connection="postgresql://db/app")


async def test_a_locked_session_is_not_waited_for_for_long(
    session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]], database: Database
) -> None:
    submission = Submission(session.record.scope, session.id, "desk", 1)
    async with await psycopg.AsyncConnection.connect(database.dsn) as other:
        await other.execute("SELECT FROM wakeful.sessions WHERE id = %s FOR UPDATE", [session.id])
        with pytest.raises(Unavailable, match="stayed locked"):
            await submit_in(caller, submission, lock_timeout=timedelta(milliseconds=50))
    assert (await submit_in(caller, submission)).created


async def test_a_role_without_rights_is_told_what_to_grant(
    session: SessionHandle, caller: psycopg.AsyncConnection[dict[str, Any]], database: Database
) -> None:
    role = f"stranger_{database.name}"
    name = sql.Identifier(role)
    await caller.execute(sql.SQL("CREATE ROLE {}").format(name))
    await caller.commit()
    try:
        await caller.execute(sql.SQL("SET LOCAL ROLE {}").format(name))
        with pytest.raises(NotAllowed, match=f"role {role} may not submit"):
            await session.submit("hello", connection=caller)
        await caller.rollback()
        app = sql.Identifier(f"{database.role_prefix}_app")
        await caller.execute(sql.SQL("GRANT {} TO {}").format(app, name))
        await caller.execute(sql.SQL("SET LOCAL ROLE {}").format(name))
        assert (await session.submit("hello", connection=caller)).created
    finally:
        await caller.rollback()
        await caller.execute(sql.SQL("DROP ROLE {}").format(name))
        await caller.commit()

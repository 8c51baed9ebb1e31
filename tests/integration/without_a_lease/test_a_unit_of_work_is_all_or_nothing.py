"""One transaction of one tenant, whatever happens to the task, the statement or the connection (ORM-3, H8)."""

import asyncio
import inspect
import random
import re
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from support.acting import World
from support.database import Database

import wakeful.persistence.repositories as repositories
from wakeful.domain.errors import ConfigurationError, OutcomeUnknown, SessionGone, Unavailable
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunCancelRequested
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import RunStatus
from wakeful.persistence import unit_of_work
from wakeful.persistence.connecting import ConnectionSettings
from wakeful.persistence.engine import make_engine
from wakeful.persistence.roles import Role
from wakeful.persistence.unit_of_work import Unit, Units

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-3")]


def note(run: RunRef) -> list[NewEvent]:
    return [NewEvent(RunCancelRequested(), Actor("user"), run.run_id)]


async def append(unit: Unit, run: RunRef) -> None:
    await unit.sessions.lock(run.session_id)
    await unit.log.append(run.session_id, note(run))


async def test_a_clean_exit_commits(world: World) -> None:
    run = await world.run()
    async with world.units.begin(run.tenant_id) as unit:
        await append(unit, run)
        assert await world.events(run) == []
    assert len(await world.events(run)) == 1


async def test_an_error_rolls_everything_back_and_passes_through(world: World) -> None:
    run = await world.run()
    with pytest.raises(RuntimeError, match="mine"):
        async with world.units.begin(run.tenant_id) as unit:
            await append(unit, run)
            raise RuntimeError("mine")
    assert await world.events(run) == []
    async with world.units.begin(run.tenant_id) as unit:
        await append(unit, run)
    assert [event["sequence"] for event in await world.events(run)] == [2]


async def test_the_tenant_is_set_for_the_transaction_alone(world: World) -> None:
    run = await world.run()
    async with world.units.begin(uuid4()) as unit:
        assert await unit.runs.find(run.run_id) is None
        with pytest.raises(SessionGone):
            await unit.sessions.lock(run.session_id)
    assert await tenants_left(world.app) == {""}


async def test_a_pooled_connection_that_died_is_replaced_before_anything_is_done(world: World) -> None:
    run = await world.run()
    await kill_others(world)
    async with world.units.begin(run.tenant_id) as unit:
        await append(unit, run)
    assert len(await world.events(run)) == 1


async def test_a_connection_that_dies_before_commit_leaves_nothing(world: World) -> None:
    run = await world.run()
    with pytest.raises(Unavailable) as caught:
        async with world.units.begin(run.tenant_id) as unit:
            await append(unit, run)
            await kill_others(world)
            await append(unit, run)
    assert not isinstance(caught.value, OutcomeUnknown)
    assert await world.events(run) == []


async def test_a_connection_that_dies_at_commit_leaves_the_outcome_unknown(world: World) -> None:
    run = await world.run()
    with pytest.raises(OutcomeUnknown):
        async with world.units.begin(run.tenant_id) as unit:
            await append(unit, run)
            await kill_others(world)
    assert await world.status(run) is RunStatus.QUEUED


async def kill_others(world: World) -> None:
    await world.admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def test_tasks_cancelled_at_any_moment_leave_no_connection_behind(world: World) -> None:
    runs = [await world.run() for _ in range(4)]

    async def work() -> None:
        run = random.choice(runs)
        async with world.units.begin(run.tenant_id) as unit:
            await append(unit, run)

    tasks = []
    for n in range(300):
        task = asyncio.create_task(work())
        tasks.append(task)
        asyncio.get_running_loop().call_later(random.uniform(0, 0.6), task.cancel)
        if n % 10 == 0:
            await asyncio.sleep(0.005)  # lets some of them get as far as their statements
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(e) for e in ended if e is not None} <= {asyncio.CancelledError}
    assert any(isinstance(e, asyncio.CancelledError) for e in ended)
    assert world.app.pool.status().find("Current Checked out connections: 0") >= 0
    assert await tenants_left(world.app) == {""}
    row = await (
        await world.admin.execute(
            "SELECT count(*) FILTER (WHERE state LIKE 'idle in transaction%%') AS idle FROM pg_stat_activity"
            " WHERE datname = current_database()"
        )
    ).fetchone()
    assert row == {"idle": 0}
    for run in runs:
        sequences = [event["sequence"] for event in await world.events(run)]
        assert sequences == list(range(2, 2 + len(sequences)))


async def tenants_left(engine: AsyncEngine) -> set[str]:
    """The tenant setting of every connection in the pool."""
    found = set()
    async with engine.connect() as one, engine.connect() as two:
        for connection in (one, two):
            value = (await connection.exec_driver_sql("SELECT current_setting('wakeful.tenant', true)")).scalar()
            found.add(value or "")
    return found


async def test_a_login_that_may_not_take_the_role_is_refused(database: Database) -> None:
    engine = make_engine(ConnectionSettings(database.dsn, Role.APP, "nobody_made_this"))
    try:
        with pytest.raises(ConfigurationError, match="nobody_made_this_app"):
            async with Units(engine).begin(uuid4()):
                pass
    finally:
        await engine.dispose()


async def test_a_server_that_is_not_there_is_unavailable(database: Database) -> None:
    engine = make_engine(ConnectionSettings("postgresql://u:secret@127.0.0.1:1/none", Role.APP, None))
    try:
        with pytest.raises(Unavailable) as caught:
            async with Units(engine).begin(uuid4()):
                pass
    finally:
        await engine.dispose()
    assert "secret" not in str(caught.value)


def test_no_repository_commits() -> None:
    folder = Path(next(iter(repositories.__path__)))
    assert len(list(folder.glob("*.py"))) > 5
    for file in folder.glob("*.py"):
        assert not re.search(r"\.(commit|rollback|begin|close)\(\)", file.read_text()), file.name


def test_every_repository_method_names_what_it_returns() -> None:
    """A concrete annotation, and none of SQLAlchemy's types (ORM-1)."""
    classes = [kind for name, kind in vars(unit_of_work).items() if name.endswith("Repository")]
    assert len(classes) == 6
    for kind in classes:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_"):
                continue
            returns = str(inspect.signature(method).return_annotation)
            assert returns not in ("Any", "typing.Any", "object"), f"{kind.__name__}.{name}"
            assert "sqlalchemy" not in returns, f"{kind.__name__}.{name}"
            assert "_empty" not in returns, f"{kind.__name__}.{name}"

"""The run reader: owners read their own runs, newest first, as they are stored."""

import pytest
from support.contract import World, call

from wakeful.domain.errors import InvalidInput, NotFound
from wakeful.domain.ids import new_id
from wakeful.domain.scopes import Scope
from wakeful.domain.states import RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]


@pytest.mark.spec("LOG-9")
@pytest.mark.parametrize("method", ["get", "invocations"])
async def test_runs_of_other_owners_look_unknown(world: World, method: str) -> None:
    run = await world.queued()
    read = getattr(world.store.runs, method)
    for scope in (Scope(world.scope.tenant_id, new_id()), Scope(new_id(), world.scope.principal_id)):
        with pytest.raises(NotFound) as refused:
            await read(scope, run.run_id)
        assert str(refused.value) == str(NotFound("run", run.run_id))
    with pytest.raises(NotFound):
        await read(world.scope, new_id())


async def test_runs_are_listed_newest_first(world: World) -> None:
    runs = [await world.queued() for _ in range(4)]
    page = await world.store.runs.page(world.scope)
    assert [run.ref for run in page] == runs[::-1]
    assert page[0] == await world.store.runs.get(world.scope, runs[-1].run_id)


async def test_pages_follow_each_other_without_gap_or_repetition(world: World) -> None:
    runs = [await world.queued() for _ in range(5)]
    first = await world.store.runs.page(world.scope, limit=2)
    second = await world.store.runs.page(world.scope, limit=2, before=first[-1].ref.run_id)
    third = await world.store.runs.page(world.scope, limit=2, before=second[-1].ref.run_id)
    assert [run.ref for run in (*first, *second, *third)] == runs[::-1]


async def test_runs_of_one_session_or_of_some_statuses_are_listed(world: World) -> None:
    lease = await world.running()
    await world.end(lease)
    session = (await world.facts(lease.run)).session
    second = (await world.store.queue.submit(world.submission(session, "more"))).run
    other = await world.queued()
    page = world.store.runs.page
    assert [run.ref for run in await page(world.scope, session_id=session.session_id)] == [second, lease.run]
    assert [run.ref for run in await page(world.scope, statuses=[RunStatus.QUEUED])] == [other, second]
    statuses = [RunStatus.COMPLETED, RunStatus.FAILED]
    assert [run.ref for run in await page(world.scope, statuses=statuses)] == [lease.run]
    assert await page(world.scope, session_id=session.session_id, statuses=[RunStatus.RUNNING]) == []


@pytest.mark.spec("LOG-9")
async def test_only_the_owners_runs_are_listed(world: World) -> None:
    await world.queued(scope=Scope(world.scope.tenant_id, new_id()))
    foreign = await world.queued(scope=Scope(new_id(), world.scope.principal_id))
    mine = await world.queued()
    assert [run.ref for run in await world.store.runs.page(world.scope)] == [mine]
    assert await world.store.runs.page(world.scope, session_id=foreign.session_id) == []


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_size_that_is_none_is_refused(world: World, limit: int) -> None:
    with pytest.raises(InvalidInput):
        await world.store.runs.page(world.scope, limit=limit)


async def test_calls_are_read_by_step_and_position(world: World) -> None:
    lease = await world.running()
    await world.turn(lease, call(lease.run, 1), call(lease.run, 0))
    await world.turn(lease, call(lease.run, 0, step=2), step=2)
    calls = await world.store.runs.invocations(world.scope, lease.run.run_id)
    assert [(stored.step, stored.position) for stored in calls] == [(1, 0), (1, 1), (2, 0)]


async def test_what_was_read_shares_nothing_with_the_store(world: World) -> None:
    run = await world.queued(metadata={"list": [1]})
    (await world.store.runs.get(world.scope, run.run_id)).metadata["list"].append(2)
    (await world.store.runs.page(world.scope))[0].metadata["list"].append(2)
    assert (await world.store.runs.get(world.scope, run.run_id)).metadata == {"list": [1]}

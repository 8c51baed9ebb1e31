"""Between this process and PostgreSQL stands a proxy that cuts, stalls, swallows and loses the answers to commits."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from support.database import Database
from support.desk import DeskWorker, backend
from support.hot_paths import store_on

from wakeful.client import Wakeful
from wakeful.domain.errors import OutcomeUnknown, Unavailable
from wakeful.domain.ids import new_id
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.faults.checker import check_database
from wakeful.faults.proxy import FaultProxy
from wakeful.persistence.connecting import ConnectionSettings
from wakeful.persistence.lease_keeper import PostgresLeaseKeeper
from wakeful.persistence.roles import Role
from wakeful.persistence.store import PostgresStore
from wakeful.runtime.outcomes import Ending

pytestmark = [pytest.mark.anyio, pytest.mark.gate("txn_hygiene")]

GIVE_UP = timedelta(seconds=0.5)


@pytest.fixture
def proxy(database: Database) -> Iterator[FaultProxy]:
    with FaultProxy(database.dsn) as opened:
        yield opened


@pytest.fixture
async def store(database: Database, proxy: FaultProxy) -> AsyncIterator[PostgresStore]:
    behind = Database(proxy.proxied(), database.role_prefix, database.name, database.server)
    async with store_on(behind, event_hints=False, statement_timeout=GIVE_UP) as opened:
        yield opened


@pytest.fixture
def desk(store: PostgresStore) -> Wakeful:
    return Wakeful(backend(store), tenant="network", principal="network")


async def checked(database: Database) -> None:
    found = await asyncio.to_thread(check_database, database.dsn, role_prefix=database.role_prefix)
    assert found.findings == []
    assert found.runs > 0


@pytest.mark.spec("LOG-2")
@pytest.mark.gate("exactly_once")
@pytest.mark.parametrize("lost", [1, 2, 3, 5])
async def test_a_run_whose_appends_commit_without_an_answer_happens_once(
    database: Database, proxy: FaultProxy, store: PostgresStore, desk: Wakeful, lost: int
) -> None:
    session = await desk.sessions.create(agent="desk")
    run = await session.submit("wire 1")
    proxy.lose_answers("append_v1", times=lost)
    await DeskWorker(store).work()
    assert (await run.wait(timeout=10)).status is RunStatus.COMPLETED
    assert proxy.landed.answers_lost == lost
    types = [event.type for event in await run.history()]
    assert types.count("run.completed") == types.count("tool.call.uncertain") == 1
    await checked(database)


async def test_a_submit_whose_answer_was_lost_is_the_same_run(
    database: Database, proxy: FaultProxy, desk: Wakeful
) -> None:
    session = await desk.sessions.create(agent="desk")
    proxy.lose_answers("submit_v1", times=2)
    run = await session.submit("hello")
    assert proxy.landed.answers_lost == 2
    assert [event.type for event in await run.history()].count("run.queued") == 1
    assert (await run.read()).status is RunStatus.QUEUED
    await checked(database)


async def test_a_claim_whose_answer_was_lost_is_found_by_the_heartbeat(
    database: Database, proxy: FaultProxy, store: PostgresStore, desk: Wakeful
) -> None:
    session = await desk.sessions.create(agent="desk")
    run = await session.submit("hello")
    owner, lease = new_id(), timedelta(seconds=30)
    proxy.lose_answers("SKIP LOCKED")
    with pytest.raises(OutcomeUnknown):
        await store.queue.claim(
            owner, capacity=dict.fromkeys(PriorityClass, 1), agents=["desk"], lease=lease, suspects=1
        )
    assert proxy.landed.answers_lost == 1
    keeper = store.lease_keeper()
    try:
        answer = await asyncio.to_thread(keeper.heartbeat, owner, [], lease=lease)
    finally:
        keeper.close()
    assert [claim.lease.run.run_id for claim in answer.adopted] == [run.id]


async def test_an_answer_whose_commit_was_not_confirmed_is_given_once(
    database: Database, proxy: FaultProxy, store: PostgresStore, desk: Wakeful
) -> None:
    session = await desk.sessions.create(agent="desk")
    run = await session.submit("ask Which?")
    await DeskWorker(store).work()
    (call,) = await run.wait_for_calls(timeout=10)
    proxy.lose_answers("COMMIT")
    await run.answer("red", call=call.id)
    assert proxy.landed.answers_lost == 1
    await DeskWorker(store).work()
    assert await run.result() == "You answered: red"
    await checked(database)


async def test_connections_cut_at_any_time_cost_no_run(
    database: Database, proxy: FaultProxy, store: PostgresStore, desk: Wakeful
) -> None:
    sessions = [await desk.sessions.create(agent="desk") for _ in range(8)]
    runs = [await session.submit(f"wire {number}") for number, session in enumerate(sessions)]
    working = asyncio.create_task(_work_on(DeskWorker(store)))
    while proxy.landed.cut < 8:
        proxy.cut()
        await asyncio.sleep(0.02)  # what is cut has to be made first
    # No heartbeat is here to find a claim that was lost with its connection: its lease has to end.
    later = datetime.now(UTC) + timedelta(hours=1)
    for expired in await store.run_sweeps.expired_leases(100, now=later):
        await store.run_sweeps.reclaim(expired, now=later)
    assert {(await run.wait(timeout=10)).status for run in runs} == {RunStatus.COMPLETED}
    working.cancel()
    await checked(database)


async def test_a_stall_only_takes_its_time(proxy: FaultProxy, store: PostgresStore, desk: Wakeful) -> None:
    session = await desk.sessions.create(agent="desk")
    run = await session.submit("hello")
    proxy.stall()
    working = asyncio.create_task(DeskWorker(store).work())
    await until(lambda: proxy.landed.stalled > 0)
    assert not working.done()
    proxy.flow()
    await working
    assert (await run.read()).status is RunStatus.COMPLETED


@pytest.mark.spec("LOG-2")
async def test_an_append_into_a_black_hole_is_given_up_and_redone(
    database: Database, proxy: FaultProxy, store: PostgresStore, desk: Wakeful
) -> None:
    session = await desk.sessions.create(agent="desk")
    run = await session.submit("wire 1")
    worker = DeskWorker(store)
    (claim,) = await worker.claim()
    assert proxy.black_hole() > 0
    executing = asyncio.create_task(worker.execute(claim))
    await until(lambda: proxy.landed.swallowed > 0)
    proxy.fill_hole()
    assert await asyncio.wait_for(executing, 20) is Ending.COMPLETED
    assert (await run.read()).status is RunStatus.COMPLETED
    await checked(database)


async def test_a_unit_of_work_that_begins_in_a_black_hole_begins_anew(proxy: FaultProxy, desk: Wakeful) -> None:
    await desk.sessions.create(agent="desk")
    assert proxy.black_hole() > 0
    creating = asyncio.create_task(desk.sessions.create(agent="desk"))
    await until(lambda: proxy.landed.swallowed > 0)
    proxy.fill_hole()
    session = await asyncio.wait_for(creating, 10)
    assert (await session.read()).closed is False


async def test_a_heartbeat_in_a_black_hole_is_given_up_within_its_lease(database: Database, proxy: FaultProxy) -> None:
    lease = timedelta(seconds=2)
    keeper = PostgresLeaseKeeper(ConnectionSettings(proxy.proxied(), Role.WORKER, database.role_prefix))
    try:
        await asyncio.to_thread(keeper.heartbeat, new_id(), [], lease=lease)
        assert proxy.black_hole() > 0
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(asyncio.to_thread(keeper.heartbeat, new_id(), [], lease=lease), 20)
        assert time.monotonic() - began < lease.total_seconds()
        proxy.fill_hole()
        await asyncio.to_thread(keeper.heartbeat, new_id(), [], lease=lease)
    finally:
        keeper.close()


async def _work_on(worker: DeskWorker) -> None:
    while True:
        try:
            await worker.work()
        except Unavailable:
            continue
        await asyncio.sleep(0.01)  # until there is more


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the proxy tells nobody
            await asyncio.sleep(0.005)

"""The canary of forced row-level security, and the one lock order beside appends, heartbeats and claims."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.acting import World

from wakeful.domain.appends import Append, RunChange
from wakeful.domain.errors import AlreadyAnswered, Fenced, NotAllowed, RunEnded
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunCancelRequested
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.persistence.store import Addresses, PostgresStore
from wakeful.persistence.sweeps import PostgresRunSweeps
from wakeful.persistence.unit_of_work import AcrossTenants

pytestmark = pytest.mark.anyio

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def leases(world: World, scope: Scope) -> None:
    await world.expired(scope=scope)


async def waits(world: World, scope: Scope) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=scope)
    await world.call(run, InvocationStatus.AWAITING_INPUT, expires_at=await world.clock("-1 second"))


async def exhausted(world: World, scope: Scope) -> None:
    await world.run(RunStatus.QUEUED, scope=scope, lease_expirations=3)


async def late(world: World, scope: Scope) -> None:
    await world.run(RunStatus.WAITING_INPUT, scope=scope, deadline_at=await world.clock("-1 second"))


async def ended_child(world: World, scope: Scope) -> None:
    parent = await world.run(RunStatus.WAITING_CHILD, scope=scope)
    call = await world.call(parent, InvocationStatus.AWAITING_CHILD)
    await world.run(
        RunStatus.CANCELLED,
        scope=scope,
        parent_run_id=parent.run_id,
        parent_session_id=parent.session_id,
        parent_invocation_id=call,
    )


async def orphan(world: World, scope: Scope) -> None:
    await world.run(scope=scope, parent_run_id=uuid4(), parent_session_id=uuid4())


Arrange = Callable[[World, Scope], Awaitable[None]]
Find = Callable[[World], Awaitable[list[Any]]]
CANDIDATES: dict[str, tuple[Arrange, Find]] = {
    "expired leases": (leases, lambda world: world.sweeps.expired_leases(10)),
    "expired waits": (waits, lambda world: world.sweeps.expired_waits(10)),
    "exhausted runs": (exhausted, lambda world: world.sweeps.hopeless(10)),
    "runs past their deadline": (late, lambda world: world.sweeps.hopeless(10)),
    "undelivered children": (ended_child, lambda world: world.child_sweeps.undelivered(10)),
    "orphans": (orphan, lambda world: world.child_sweeps.orphans(10)),
}


def tenant_of(candidate: Any) -> UUID:
    ref = candidate if isinstance(candidate, RunRef) else getattr(candidate, "run", None) or candidate.child
    assert isinstance(ref, RunRef)
    return ref.tenant_id


@pytest.mark.parametrize("what", CANDIDATES)
async def test_a_sweep_finds_the_candidates_of_two_tenants(world: World, what: str) -> None:
    arrange, find = CANDIDATES[what]
    scopes = [Scope(uuid4(), uuid4()) for _ in range(2)]
    for scope in scopes:
        await arrange(world, scope)
    assert {tenant_of(found) for found in await find(world)} == {scope.tenant_id for scope in scopes}


async def test_the_app_role_would_find_nothing_and_say_nothing(world: World) -> None:
    """Why the canary is there: the same question without a tenant looks like an empty table."""
    await world.expired()
    blind = PostgresRunSweeps(world.units, AcrossTenants(world.app))
    assert await blind.expired_leases(10) == []


async def test_the_worker_role_reads_no_content(world: World) -> None:
    run = await world.run()
    for statement in (
        "SELECT payload FROM wakeful.events",
        "SELECT metadata FROM wakeful.runs",
        "SELECT context_updates FROM wakeful.tool_invocations",
    ):
        with pytest.raises(NotAllowed):
            async with world.across.begin() as session:
                await (await session.connection()).exec_driver_sql(statement)
    assert await world.status(run) is RunStatus.QUEUED


@pytest.mark.gate("no_deadlocks")
async def test_sweeps_beside_appends_heartbeats_and_answers_never_deadlock(world: World) -> None:
    """Every writer there is, on four sessions at once; a deadlock would also raise in one of them."""
    before = await deadlocks(world)
    scope = Scope(uuid4(), uuid4())
    runs = [await world.run(RunStatus.RUNNING, scope=scope) for _ in range(4)]
    calls = {
        run: [await world.call(run, InvocationStatus.AWAITING_INPUT, position=n) for n in range(30)] for run in runs
    }
    store = PostgresStore(Addresses(app=world.database.dsn), role_prefix=world.database.role_prefix)
    await store.open()
    try:
        await asyncio.gather(
            *(append(world, store.log, runs, 60) for _ in range(3)),
            *(sweep(world, runs, 60) for _ in range(2)),
            heartbeat(world, runs, 60),
            answer(world, scope, calls),
        )
    finally:
        await store.close()
    tokens = [(await world.row(run))["token_count"] for run in runs]
    assert sum(tokens) > 0
    # A backend reports what it counted when it ends.
    await world.app.dispose()
    assert await deadlocks(world) == before


async def append(world: World, log: EventLog, runs: list[RunRef], times: int) -> None:
    """A holder's appends, under whatever lease is current; one that another has taken meanwhile is refused."""
    for _ in range(times):
        run = random.choice(runs)
        row = await world.row(run)
        lease = Lease(run, row["lease_owner"] or uuid4(), row["lease_epoch"])
        events = tuple(NewEvent(RunCancelRequested(), Actor("worker"), run.run_id) for _ in range(2))
        with suppress(Fenced):
            await log.append(Append(run.session, events, lease, RunChange(add_tokens=1)))


async def sweep(world: World, runs: list[RunRef], times: int) -> None:
    for _ in range(times):
        later = await world.clock("1 hour")
        for expired in await world.sweeps.expired_leases(2, now=later):
            await world.sweeps.reclaim(expired, now=later, max_attempts=10_000)


async def heartbeat(world: World, runs: list[RunRef], times: int) -> None:
    """Renews and claims again what the sweeps took, all rows in one statement, locked in order."""
    for _ in range(times):
        async with world.other() as connection:
            await connection.execute(
                "WITH mine AS (SELECT tenant_id, id FROM wakeful.runs WHERE id = ANY(%s)"
                " ORDER BY tenant_id, id FOR NO KEY UPDATE)"
                " UPDATE wakeful.runs AS r SET status = 'RUNNING', lease_owner = %s, lease_epoch = lease_epoch + 1,"
                " lease_expires_at = clock_timestamp() + interval '30 s'"
                " FROM mine WHERE r.tenant_id = mine.tenant_id AND r.id = mine.id",
                [[run.run_id for run in runs], uuid4()],
            )


async def answer(world: World, scope: Scope, calls: dict[RunRef, list[UUID]]) -> None:
    for run, ids in calls.items():
        for call in ids:
            try:
                await world.control.answer(scope, run.run_id, call, "yes")
            except (AlreadyAnswered, RunEnded) as error:
                raise AssertionError("nobody else answers or ends these runs") from error


async def deadlocks(world: World) -> int:
    await world.admin.execute("SELECT pg_stat_force_next_flush()")
    row = await (await world.admin.execute(DEADLOCKS)).fetchone()
    assert row is not None
    return int(row["deadlocks"])


@pytest.mark.spec("QUE-10")
async def test_keys_of_every_tenant_expire_once_their_runs_have_ended(world: World) -> None:
    past, future = await world.clock("-1 second"), await world.clock("1 hour")
    scopes = [Scope(uuid4(), uuid4()) for _ in range(2)]
    for scope in scopes:
        for n, (status, expires_at) in enumerate(
            [(RunStatus.COMPLETED, past), (RunStatus.WAITING_INPUT, past), (RunStatus.COMPLETED, future)]
        ):
            run = await world.run(status, scope=scope)
            await world.insert(
                "idempotency_keys",
                {
                    "tenant_id": scope.tenant_id,
                    "principal_id": scope.principal_id,
                    "key": f"key-{n}",
                    "request_hash": "",
                    "run_id": run.run_id,
                    "session_id": run.session_id,
                    "expires_at": expires_at,
                },
            )
    assert await world.housekeeping.expire_keys(10) == 2
    assert await world.housekeeping.expire_keys(10) == 0
    left = await world.admin.execute("SELECT DISTINCT key FROM wakeful.idempotency_keys ORDER BY key")
    assert [row["key"] for row in await left.fetchall()] == ["key-1", "key-2"]
    assert await world.housekeeping.expire_keys(1, now=await world.clock("2 hours")) == 1


async def test_a_tick_says_how_long_ago_a_sweeper_looked(world: World) -> None:
    assert await world.housekeeping.last_tick("leases") is None
    await world.housekeeping.tick("leases", uuid4())
    await world.housekeeping.tick("leases", uuid4())
    age = await world.housekeeping.last_tick("leases")
    assert age is not None
    assert timedelta(0) <= age < timedelta(minutes=1)
    await world.admin.execute("UPDATE wakeful.sweep_ticks SET ticked_at = ticked_at - interval '1 hour'")
    age = await world.housekeeping.last_tick("leases")
    assert age is not None
    assert age >= timedelta(hours=1)

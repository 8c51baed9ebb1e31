"""A claim is one statement over the queue's own index, and whatever happens a run has one holder at a time."""

import asyncio
import re
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.contract import EVERY_CLASS, TERM, World, later
from support.database import Database
from support.hot_paths import Admin

from wakeful.domain.appends import RunChange
from wakeful.domain.errors import Fenced
from wakeful.domain.events.runs import RunCheckpointed, RunCompleted
from wakeful.domain.ids import new_id
from wakeful.domain.runs import Lease
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.persistence.claiming import CLAIM, claim_parameters
from wakeful.persistence.connecting import ConnectionSettings, connector
from wakeful.persistence.roles import Role
from wakeful.persistence.store import PostgresStore

pytestmark = pytest.mark.anyio

BACKLOG = 20_000
ONE_OF_SERVED = {
    "now": "NULL",
    "classes": "'{0}'",
    "slots": "'{1}'",
    "agents": "'{served}'",
    "max_attempts": "3",
    "suspects": "2",
    "owner": "gen_random_uuid()",
    "lease": "'30 s'",
}
"""A claim's parameters in SQL."""
_FILL = """
WITH opened AS (
    INSERT INTO wakeful.sessions (tenant_id, id, principal_id, agent)
    SELECT %(tenant)s, gen_random_uuid(), %(tenant)s, 'x' FROM generate_series(1, %(count)s) RETURNING id)
INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status, priority,
                          created_at, scheduled_for, suspect, lease_expirations)
SELECT %(tenant)s, gen_random_uuid(), id, %(tenant)s, %(agent)s, 1, 'QUEUED', %(priority)s,
       now() - interval '1 hour' + random() * interval '30 minutes',
       CASE WHEN %(later)s THEN now() + interval '1 hour' + random() * interval '1 day' END,
       %(suspect)s, %(suspect)s::integer
  FROM opened
"""


async def fill(
    admin: Admin, agent: str, count: int, *, priority: int = 0, future: bool = False, suspect: bool = False
) -> None:
    tenant = new_id()
    await admin.fetch("INSERT INTO wakeful.tenants (id) VALUES (%s)", [tenant])
    values = {
        "tenant": tenant,
        "count": count,
        "agent": agent,
        "priority": priority,
        "later": future,
        "suspect": suspect,
    }
    await admin.connection.execute(_FILL.encode(), values)


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


@pytest.mark.spec("QUE-1")
@pytest.mark.spec("QUE-3")
async def test_a_claim_probes_the_queues_index_and_reads_little_whatever_is_queued(
    database: Database, admin: Admin
) -> None:
    """After a bulk load without statistics: due runs of agents served and not served, later ones, suspects."""
    await fill(admin, "served", BACKLOG)
    await fill(admin, "stranger", BACKLOG)
    await fill(admin, "served", BACKLOG, future=True, priority=10)
    await fill(admin, "served", 40, suspect=True, priority=20)
    connection = await connector(ConnectionSettings(database.dsn, Role.WORKER, database.role_prefix))()
    async with connection, connection.transaction(force_rollback=True):
        parameters = claim_parameters(
            new_id(),
            capacity=dict.fromkeys(PriorityClass, 4),
            agents=["served", "idle"],
            lease=TERM,
            suspects=2,
            max_attempts=3,
            now=None,
        )
        cursor = await connection.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + CLAIM, parameters)
        row = await cursor.fetchone()
    assert row is not None
    (explained,) = row[0]
    found = nodes(explained["Plan"])
    scans = [node for node in found if node.get("Relation Name") == "runs" and node["Node Type"] != "ModifyTable"]
    assert {node["Node Type"] for node in scans} <= {"Index Scan", "Index Only Scan", "Tid Scan"}
    assert {node.get("Index Name") for node in scans} <= {"ix_runs_queued", None}
    assert any(node.get("Index Name") == "ix_runs_queued" for node in scans)
    plan = explained["Plan"]
    probes = [node for node in found if node.get("CTE Name") == "due"]
    assert probes
    read = sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in probes)
    assert read < 300
    for node in scans:
        if node.get("Index Name") == "ix_runs_queued":
            assert "due_at" in node["Index Cond"]
    assert plan["Actual Rows"] == 4 + 2


@pytest.mark.spec("QUE-2")
async def test_a_flood_of_suspects_hides_nobody_behind_them(store: PostgresStore, admin: Admin, world: World) -> None:
    await fill(admin, "helper", 50, suspect=True)
    run = await world.queued()
    claims = await store.queue.claim(
        new_id(), capacity={PriorityClass.INTERACTIVE: 4}, agents=["helper"], lease=TERM, suspects=1
    )
    assert sum(claim.suspect for claim in claims) == 1
    assert run in [claim.lease.run for claim in claims]


@pytest.mark.gate("exactly_once")
@pytest.mark.spec("QUE-1")
@pytest.mark.spec("QUE-5")
async def test_many_claimers_of_a_backlog_get_each_run_once(store: PostgresStore, admin: Admin) -> None:
    await fill(admin, "helper", 300)
    taken: Counter[UUID] = Counter()

    async def work() -> None:
        owner = new_id()
        empty = 0
        while empty < 3:
            claims = await store.queue.claim(
                owner, capacity=dict.fromkeys(PriorityClass, 7), agents=["helper"], lease=TERM, suspects=1
            )
            # Others may hold what was due for the moment of their own statement.
            empty = 0 if claims else empty + 1
            taken.update(claim.lease.run.run_id for claim in claims)

    await asyncio.gather(*(work() for _ in range(8)))
    assert len(taken) == 300
    assert set(taken.values()) == {1}


@pytest.mark.gate("exactly_once")
@pytest.mark.spec("QUE-5")
@pytest.mark.spec("LOG-3")
async def test_with_a_lease_that_expires_at_once_one_of_two_workers_writes(world: World, store: PostgresStore) -> None:
    """The reclaim interval at zero: every claim is swept at once, and only the newest epoch ever writes."""
    run = await world.queued()
    leases: list[Lease] = []
    for _ in range(3):
        leases += [claim.lease for claim in await world.claims(owner=new_id(), lease=timedelta(0), now=later())]
        await world.crashed(leases[-1], max_attempts=100)
    leases += [claim.lease for claim in await world.claims(owner=new_id(), now=later(), max_attempts=100)]

    async def write(lease: Lease) -> bool:
        try:
            await world.append(lease, RunCheckpointed(trigger=str(lease.epoch)), run=RunChange(add_tokens=1))
            await world.append(lease, RunCompleted(steps=0, tool_calls=0), run=RunChange(RunStatus.COMPLETED))
        except Fenced:
            return False
        return True

    assert await asyncio.gather(*(write(lease) for lease in leases)) == [False, False, False, True]
    facts = await world.facts(run)
    assert (facts.run.token_count, facts.run.status) == (1, RunStatus.COMPLETED)
    written = [event.payload.trigger for event in facts.events if isinstance(event.payload, RunCheckpointed)]
    assert written == [str(leases[-1].epoch)]


@pytest.mark.spec("QUE-1")
async def test_a_claim_skips_a_locked_run_and_takes_one_that_a_foreign_key_touches(
    world: World, admin: Admin, database: Database
) -> None:
    locked, touched = await world.queued(), await world.queued()
    async with await psycopg.AsyncConnection.connect(database.dsn) as other:
        await other.execute("SELECT FROM wakeful.runs WHERE id = %s FOR UPDATE", [locked.run_id])
        await other.execute("SELECT FROM wakeful.runs WHERE id = %s FOR KEY SHARE", [touched.run_id])
        assert [claim.lease.run for claim in await world.claims()] == [touched]
        await other.rollback()
    assert [claim.lease.run for claim in await world.claims()] == [locked]


@pytest.mark.spec("QUE-9")
async def test_the_database_itself_refuses_a_second_active_run(world: World, admin: Admin) -> None:
    run = await world.queued()
    with pytest.raises(psycopg.errors.UniqueViolation, match="uq_runs_active_in_session"):
        await admin.fetch(
            "INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status)"
            " SELECT tenant_id, gen_random_uuid(), session_id, principal_id, agent, 1, 'WAITING_INPUT'"
            " FROM wakeful.runs WHERE id = %s",
            [run.run_id],
        )


@pytest.mark.spec("QUE-8")
async def test_runs_scheduled_for_later_wait_until_the_databases_clock_says_so(world: World, admin: Admin) -> None:
    run = await world.queued(scheduled_for=later(3600))
    assert await world.claims(capacity=EVERY_CLASS) == []
    await admin.fetch("UPDATE wakeful.runs SET scheduled_for = clock_timestamp() WHERE id = %s", [run.run_id])
    assert [claim.lease.run for claim in await world.claims()] == [run]


@pytest.mark.spec("QUE-10")
async def test_sixty_four_submits_of_one_key_give_one_run_though_the_first_is_ended_before_its_commit(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    sessions = [await world.session() for _ in range(64)]
    submissions = [world.submission(session, "hi", key="k", request_hash="h") for session in sessions]
    async with admin.locking(sessions[0].ref):
        doomed = asyncio.create_task(store.queue.submit(submissions[0]))
        (pid,) = await admin.waiting(1)
        others = [asyncio.create_task(store.queue.submit(one)) for one in submissions[1:]]
        await admin.fetch("SELECT pg_terminate_backend(%s)", [pid])
        answers = await asyncio.gather(*others)
    assert isinstance((await asyncio.gather(doomed, return_exceptions=True))[0], Exception)
    redone = await store.queue.submit(submissions[0])
    assert len({answer.run for answer in (*answers, redone)}) == 1
    assert sum(answer.created for answer in (*answers, redone)) == 1
    assert await admin.fetch("SELECT count(*)::int FROM wakeful.runs") == [(1,)]


@pytest.mark.spec("QUE-10")
async def test_a_key_outlives_its_time_while_its_run_lives_and_is_free_afterwards(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    first = await world.queued(key="k", request_hash="h", key_kept=timedelta(0))
    other = world.submission(await world.session(), "hi", key="k", request_hash="h")
    assert (await store.queue.submit(other)).run == first
    await world.end(await world.claim())
    assert (await store.queue.submit(other)).run == other.ref


@pytest.mark.spec("QUE-3")
async def test_a_claim_planned_over_an_empty_queue_serves_a_full_one_by_its_index(
    database: Database, admin: Admin
) -> None:
    """One plan is kept per connection, so it is made before there is anything to plan for."""
    connection = await connector(ConnectionSettings(database.dsn, Role.WORKER, database.role_prefix))()
    async with connection:
        names = list(ONE_OF_SERVED)
        prepared = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", CLAIM.decode())
        await connection.execute(f"PREPARE claim AS {prepared}".encode())
        values = ", ".join(ONE_OF_SERVED.values())
        execute = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE claim ({values})".encode()
        await connection.execute(execute)
        await fill(admin, "served", 2000)
        row = await (await connection.execute(execute)).fetchone()
    assert row is not None
    found = nodes(row[0][0]["Plan"])
    probes = [node for node in found if node.get("Index Name") == "ix_runs_queued"]
    assert probes
    assert max(node["Actual Rows"] for node in probes) <= 1 + 2
    assert row[0][0]["Plan"]["Actual Rows"] == 1

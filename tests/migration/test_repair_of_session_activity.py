"""The repair gives active sessions their own activity back, in every tenant, and touches nothing else."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb
from support.database import Database
from support.schema import Direct, migrate, revisions, set_tenant, wait_until_blocked

pytestmark = [pytest.mark.gate("migration_stepwise"), pytest.mark.spec("LOG-7")]

REPAIR = "b7e40d95c1a8"
(BEFORE,) = (str(script.down_revision) for script in revisions() if script.revision == REPAIR)
START = datetime(2026, 3, 1, tzinfo=UTC)

Entry = tuple[int, str, str, bool]
"""Minutes after the session's creation, event type, actor type, whether it belongs to a run."""
SAID: Entry = (1, "user.message.received", "user", True)
DECAYED: Entry = (5, "memory.decayed", "memory", False)
RETIRED: Entry = (6, "memory.retired", "memory", False)


@dataclass(frozen=True)
class Case:
    log: list[Entry]
    stored: int
    repaired: int
    """Minutes after the session's creation that `updated_at` says, before and after."""
    status: str = "active"


CASES = {
    "the memory forgot last": Case([SAID, DECAYED], 5, 1),
    "it forgot twice": Case([SAID, DECAYED, RETIRED], 6, 1),
    "the second time left the activity alone already": Case([SAID, DECAYED, RETIRED], 5, 1),
    "it forgot before the owner spoke again": Case([DECAYED, (9, "user.message.received", "user", True)], 9, 9),
    "the owner spoke in the same append": Case([(5, "user.message.received", "user", True), DECAYED], 5, 5),
    "nothing else ever happened": Case([DECAYED], 5, 0),
    "nothing ever happened": Case([], 0, 0),
    "another write came later": Case([SAID, DECAYED], 30, 30),
    "the activity was never moved": Case([SAID, DECAYED], 1, 1),
    "a session closed since": Case([SAID, DECAYED], 5, 5, status="closed"),
    "a run forgot": Case([SAID, (5, "memory.retired", "memory", True)], 5, 5),
    "a user retired it": Case([SAID, (5, "memory.retired", "user", False)], 5, 5),
    "the memory learned": Case([SAID, (5, "memory.formed", "memory", False)], 5, 5),
}


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def write_session(connection: Direct, tenant: UUID, session: UUID, case: Case) -> None:
    set_tenant(connection, tenant)
    connection.execute(
        """
        INSERT INTO wakeful.sessions (tenant_id, id, principal_id, agent, status, created_at, updated_at)
        VALUES (%s, %s, %s, 'a', %s, %s, %s)
        """,
        [tenant, session, uuid4(), case.status, START, at(case.stored)],
    )
    for sequence, (minutes, event_type, actor, of_run) in enumerate(case.log, start=1):
        connection.execute(
            """
            INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, run_id, event_type,
                                        payload_schema_version, actor_type, payload, created_at)
            VALUES (%s, %s, %s, %s, %s, %s, 1, %s, %s, %s)
            """,
            [
                tenant,
                session,
                sequence,
                uuid4(),
                uuid4() if of_run else None,
                event_type,
                actor,
                Jsonb({}),
                at(minutes),
            ],
        )


def stored(dsn: str, table: str) -> list[dict[str, Any]]:
    query = sql.SQL("SELECT to_jsonb(t) FROM wakeful.{} AS t ORDER BY to_jsonb(t)::text").format(sql.Identifier(table))
    with psycopg.connect(dsn) as connection:
        return [row for (row,) in connection.execute(query)]


def activity(dsn: str) -> dict[UUID, datetime]:
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute("SELECT id, updated_at FROM wakeful.sessions").fetchall())


@pytest.fixture
def owned_database(empty_database: Database) -> tuple[Database, str]:
    """A database at the revision before, owned by a login that row-level security binds."""
    owner = f"{empty_database.role_prefix}owner"
    with psycopg.connect(empty_database.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{owner}" LOGIN'.encode())
        connection.execute(f'ALTER DATABASE "{empty_database.name}" OWNER TO "{owner}"'.encode())
    owner_dsn = empty_database.server.dsn(empty_database.name, user=owner)
    migrate(owner_dsn, BEFORE)
    return empty_database, owner_dsn


def write_cases(dsn: str) -> dict[UUID, datetime]:
    """Every case in each of two tenants; returns the activity each session shall have."""
    expected = {}
    with psycopg.connect(dsn) as connection:
        for tenant in (uuid4(), uuid4()):
            connection.execute("INSERT INTO wakeful.tenants (id) VALUES (%s)", [tenant])
            for case in CASES.values():
                session = uuid4()
                write_session(connection, tenant, session, case)
                expected[session] = at(case.repaired)
    return expected


def test_sessions_that_need_it_get_their_own_activity_back_in_every_tenant_and_nothing_else_changes(
    owned_database: tuple[Database, str],
) -> None:
    database, owner_dsn = owned_database
    expected = write_cases(database.dsn)
    before = activity(database.dsn)
    events, sessions = stored(database.dsn, "events"), stored(database.dsn, "sessions")
    migrate(owner_dsn, REPAIR)
    after = activity(database.dsn)
    assert after == expected
    assert sum(after[session] != before[session] for session in after) == 2 * 4
    assert stored(database.dsn, "events") == events
    by_id = {row["id"]: row for row in sessions}
    for row in stored(database.dsn, "sessions"):
        assert row | {"updated_at": None} == by_id[row["id"]] | {"updated_at": None}


def test_doing_it_again_after_an_interruption_changes_nothing_more(owned_database: tuple[Database, str]) -> None:
    database, owner_dsn = owned_database
    expected = write_cases(database.dsn)
    migrate(owner_dsn, REPAIR)
    with psycopg.connect(database.dsn) as connection:
        connection.execute("UPDATE wakeful.alembic_version SET version_num = %s", [BEFORE])
    migrate(owner_dsn, REPAIR)
    assert activity(database.dsn) == expected


def test_an_append_that_the_repair_waits_for_keeps_its_time(owned_database: tuple[Database, str]) -> None:
    database, owner_dsn = owned_database
    tenant, spoken, forgotten = uuid4(), uuid4(), uuid4()
    with psycopg.connect(database.dsn) as connection:
        connection.execute("INSERT INTO wakeful.tenants (id) VALUES (%s)", [tenant])
        for session in (spoken, forgotten):
            write_session(connection, tenant, session, CASES["the memory forgot last"])
    with psycopg.connect(database.dsn) as appending, ThreadPoolExecutor(1) as pool:
        appending.execute("UPDATE wakeful.sessions SET updated_at = %s WHERE id = %s", [at(9), spoken])
        repair = pool.submit(migrate, owner_dsn, REPAIR)
        wait_until_blocked(database)
        appending.commit()
        repair.result(timeout=60)
    assert activity(database.dsn) == {spoken: at(9), forgotten: at(1)}


def test_an_update_that_something_swallows_stops_the_upgrade_by_name(owned_database: tuple[Database, str]) -> None:
    """A count that does not match is how hidden rows show themselves; silence would be the fault."""
    database, owner_dsn = owned_database
    write_cases(database.dsn)
    with psycopg.connect(database.dsn) as connection:
        connection.execute(
            "CREATE FUNCTION wakeful.swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
        )
        connection.execute(
            "CREATE TRIGGER swallow BEFORE UPDATE ON wakeful.sessions FOR EACH ROW EXECUTE FUNCTION wakeful.swallow()"
        )
    before = activity(database.dsn)
    with pytest.raises(RuntimeError, match=r"4 sessions need .* but 0 were updated"):
        migrate(owner_dsn, REPAIR)
    assert activity(database.dsn) == before

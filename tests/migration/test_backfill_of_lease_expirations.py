"""The backfill counts crashes from the log, in every tenant, and touches nothing else."""

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support.database import Database
from support.schema import Direct, insert_sample_rows, migrate, set_tenant

pytestmark = [pytest.mark.gate("migration_stepwise"), pytest.mark.spec("QUE-6")]

BEFORE, BACKFILL = "0a41e568d2cf", "8436fb39eefa"
EXPIRED = ("run.requeued", "maintenance", {"reason": "lease_expired", "epoch": 1})
EXHAUSTED = ("run.failed", "maintenance", {"failure": {"code": "max_attempts_exceeded", "message": ""}})
Entry = tuple[str, str, dict[str, Any]]

HISTORIES: dict[str, tuple[str, int, list[Entry]]] = {
    "never crashed, claimed often": ("QUEUED", 0, [("run.requeued", "maintenance", {"reason": "input"})] * 4),
    "answered twice": ("QUEUED", 0, [("run.requeued", "user", {"reason": "approval"})] * 2),
    "drained": ("QUEUED", 0, [("run.requeued", "worker", {"reason": "drain"})]),
    "crashed once": ("QUEUED", 1, [EXPIRED]),
    "crashed twice, answered between": (
        "WAITING_INPUT",
        2,
        [EXPIRED, ("run.requeued", "user", {"reason": "input"}), EXPIRED],
    ),
    "exhausted": ("FAILED", 3, [EXPIRED, EXPIRED, EXHAUSTED]),
    "failed for another reason": ("FAILED", 1, [EXPIRED, ("run.failed", "worker", {"failure": {"code": "model"}})]),
    "a worker's word is no evidence": ("COMPLETED", 0, [("run.requeued", "worker", {"reason": "lease_expired"})]),
}


def write_history(connection: Direct, tenant: UUID, run: UUID, status: str, entries: list[Entry]) -> None:
    session = uuid4()
    set_tenant(connection, tenant)
    connection.execute(
        "INSERT INTO wakeful.sessions (tenant_id, id, principal_id, agent) VALUES (%s, %s, %s, 'a')",
        [tenant, session, uuid4()],
    )
    connection.execute(
        """
        INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status, attempts)
        VALUES (%s, %s, %s, %s, 'a', 1, %s, 7)
        """,
        [tenant, run, session, uuid4(), status],
    )
    for sequence, (event_type, actor, payload) in enumerate(entries, start=1):
        connection.execute(
            """
            INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, run_id, event_type,
                                        payload_schema_version, actor_type, payload, created_at)
            VALUES (%s, %s, %s, %s, %s, %s, 1, %s, %s, clock_timestamp())
            """,
            [tenant, session, sequence, uuid4(), run, event_type, actor, Jsonb(payload)],
        )


def runs_of(connection: Direct) -> dict[UUID, dict[str, Any]]:
    rows = connection.execute("SELECT id, to_jsonb(runs) FROM wakeful.runs").fetchall()
    return dict(rows)


@pytest.fixture
def owned_database(empty_database: Database) -> tuple[Database, str]:
    """A database at the revision before, owned by a login that row-level security binds."""
    owner = f"{empty_database.role_prefix}owner"
    with psycopg.connect(empty_database.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{owner}" LOGIN'.encode())
        connection.execute(f'ALTER DATABASE "{empty_database.name}" OWNER TO "{owner}"'.encode())
    return empty_database, empty_database.server.dsn(empty_database.name, user=owner)


def test_every_tenants_crashes_are_counted_and_nothing_else_changes(owned_database: tuple[Database, str]) -> None:
    database, owner_dsn = owned_database
    migrate(owner_dsn, BEFORE)
    expected: dict[UUID, int] = {}
    with psycopg.connect(database.dsn) as connection:
        for tenant in (uuid4(), uuid4()):
            connection.execute("INSERT INTO wakeful.tenants (id) VALUES (%s)", [tenant])
            for status, count, entries in HISTORIES.values():
                run = uuid4()
                expected[run] = count
                write_history(connection, tenant, run, status, entries)
    with psycopg.connect(database.dsn) as connection:
        before = runs_of(connection)
    migrate(owner_dsn, BACKFILL)
    with psycopg.connect(database.dsn) as connection:
        after = runs_of(connection)
    assert {run: row["lease_expirations"] for run, row in after.items()} == expected
    assert sum(expected.values()) == 2 * 7
    for run, row in after.items():
        assert row | {"lease_expirations": 0} == before[run]


def test_doing_it_again_after_an_interruption_counts_nothing_twice(owned_database: tuple[Database, str]) -> None:
    database, owner_dsn = owned_database
    migrate(owner_dsn, BEFORE)
    run = uuid4()
    with psycopg.connect(database.dsn) as connection:
        tenant = uuid4()
        connection.execute("INSERT INTO wakeful.tenants (id) VALUES (%s)", [tenant])
        write_history(connection, tenant, run, "QUEUED", [EXPIRED, EXPIRED])
    migrate(owner_dsn, BACKFILL)
    with psycopg.connect(database.dsn) as connection:
        connection.execute("UPDATE wakeful.alembic_version SET version_num = %s", [BEFORE])
    migrate(owner_dsn, BACKFILL)
    with psycopg.connect(database.dsn) as connection:
        assert runs_of(connection)[run]["lease_expirations"] == 2


def test_an_event_whose_run_is_missing_stops_the_upgrade_by_name(owned_database: tuple[Database, str]) -> None:
    """A count that does not match is how hidden rows show themselves; silence would be the fault."""
    database, owner_dsn = owned_database
    migrate(owner_dsn, BEFORE)
    tenant = uuid4()
    with psycopg.connect(database.dsn) as connection:
        connection.execute("INSERT INTO wakeful.tenants (id) VALUES (%s)", [tenant])
        write_history(connection, tenant, uuid4(), "QUEUED", [EXPIRED])
        connection.execute("DELETE FROM wakeful.runs")
    with pytest.raises(RuntimeError, match=str(tenant)):
        migrate(owner_dsn, BACKFILL)


def test_a_database_without_tenants_is_backfilled_too(owned_database: tuple[Database, str]) -> None:
    _, owner_dsn = owned_database
    migrate(owner_dsn, BACKFILL)


def test_rows_of_every_table_survive(owned_database: tuple[Database, str]) -> None:
    database, owner_dsn = owned_database
    migrate(owner_dsn, BEFORE)
    tenant = uuid4()
    insert_sample_rows(database.dsn, tenant)
    migrate(owner_dsn, BACKFILL)
    with psycopg.connect(database.dsn) as connection:
        assert [row["lease_expirations"] for row in runs_of(connection).values()] == [0]

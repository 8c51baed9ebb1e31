"""The database itself refuses to change the log, whoever asks; rows leave only with their session."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from support.database import ROLE_PREFIX, Database, database_from
from support.schema import Direct, as_role, insert_sample_rows, set_tenant

from wakeful.embedded import EmbeddedPostgres
from wakeful.persistence.roles import Role

pytestmark = pytest.mark.spec("LOG-6")

TENANT = UUID(int=7)
CHANGES = {
    "update of the payload": "UPDATE wakeful.events SET payload = '{}'",
    "update of anything": "UPDATE wakeful.events SET actor_id = 'x'",
    "update that matches nothing": "UPDATE wakeful.events SET payload = '{}' WHERE false",
    "delete": "DELETE FROM wakeful.events",
    "delete that matches nothing": "DELETE FROM wakeful.events WHERE false",
    "truncate": "TRUNCATE wakeful.events",
    "truncate by cascade": "TRUNCATE wakeful.sessions CASCADE",
    "merge": "MERGE INTO wakeful.events AS e USING (SELECT 1) AS s ON true WHEN MATCHED THEN UPDATE SET actor_id = 'x'",
    "upsert": (
        "INSERT INTO wakeful.events SELECT * FROM wakeful.events "
        "ON CONFLICT (tenant_id, session_id, sequence) DO UPDATE SET payload = '{}'"
    ),
}


@pytest.fixture(scope="module")
def database(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[Database]:
    with database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as clone:
        insert_sample_rows(clone.dsn, TENANT)
        yield clone


@pytest.fixture
def owner(database: Database) -> Iterator[Direct]:
    """The owner of the tables, as which migrations run; here it is a superuser as well."""
    with psycopg.connect(database.dsn) as connection:
        set_tenant(connection, TENANT)
        yield connection
        connection.rollback()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_owner_and_superuser_is_refused_with_a_reason(owner: Direct, change: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation, match="immutable"):
        owner.execute(change.encode())


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_no_role_has_the_right_to_try(database: Database, role: Role, change: str) -> None:
    with psycopg.connect(as_role(database.dsn, database.role_prefix, role)) as connection:
        set_tenant(connection, TENANT)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(change.encode())


def test_events_leave_with_their_session(owner: Direct) -> None:
    assert owner.execute("SELECT count(*) FROM wakeful.events").fetchone() == (1,)
    owner.execute("DELETE FROM wakeful.sessions WHERE tenant_id = %s", [TENANT])
    assert owner.execute("SELECT count(*) FROM wakeful.events").fetchone() == (0,)


def test_deleting_a_run_leaves_its_events(owner: Direct) -> None:
    owner.execute("DELETE FROM wakeful.runs WHERE tenant_id = %s", [TENANT])
    assert owner.execute("SELECT count(*) FROM wakeful.events").fetchone() == (1,)


def test_a_payload_over_one_mebibyte_is_refused(owner: Direct) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="ck_events_payload_bytes"):
        owner.execute(
            """
            INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, event_type, payload_schema_version,
                                        actor_type, payload, created_at)
            SELECT tenant_id, session_id, 2, %s, event_type, 1, 'user',
                   jsonb_build_object('content', repeat('x', 1048576)), clock_timestamp() FROM wakeful.events
            """,
            [uuid4()],
        )


def test_the_refusal_still_stands_when_the_owner_is_nobody_special(database: Database) -> None:
    owner = f"log_owner_{uuid4().hex[:8]}"
    name = sql.Identifier(owner)
    with psycopg.connect(database.dsn) as connection:
        connection.execute(sql.SQL("CREATE ROLE {}").format(name))
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA wakeful TO {}").format(name))
        connection.execute(sql.SQL("ALTER TABLE wakeful.events OWNER TO {}").format(name))
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(name))
        set_tenant(connection, TENANT)
        with pytest.raises(psycopg.errors.RestrictViolation, match="immutable"):
            connection.execute("UPDATE wakeful.events SET payload = '{}'")
        connection.rollback()

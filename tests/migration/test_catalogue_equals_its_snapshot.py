"""What autogenerate cannot see, committed for review: predicates, policies, functions, triggers, grants.

After a deliberate change: `WAKEFUL_WRITE_CATALOGUE=1 pytest tests/migration/test_catalogue_equals_its_snapshot.py`,
then read the difference before committing it.
"""

import os
from difflib import unified_diff
from pathlib import Path

import psycopg
import pytest
from support.catalogue import catalogue
from support.database import Database

pytestmark = [pytest.mark.gate("migration_clean"), pytest.mark.spec("MIG-3")]

SNAPSHOT = Path(__file__).parent / "catalogue.txt"
DRIFTS = [
    "DROP POLICY one_tenant ON wakeful.events",
    "ALTER TABLE wakeful.runs NO FORCE ROW LEVEL SECURITY",
    "GRANT DELETE ON wakeful.events TO PUBLIC",
    "GRANT SELECT (metadata) ON wakeful.runs TO PUBLIC",
    "ALTER TABLE wakeful.events DISABLE TRIGGER events_are_immutable",
    "ALTER TABLE wakeful.runs DROP CONSTRAINT ck_runs_status",
    "ALTER FUNCTION wakeful.refuse_event_change() SECURITY DEFINER",
]


def test_the_catalogue_is_the_committed_one(database: Database) -> None:
    live = catalogue(database.dsn, database.role_prefix)
    if os.environ.get("WAKEFUL_WRITE_CATALOGUE"):
        SNAPSHOT.write_text(live, encoding="utf-8")
    committed = SNAPSHOT.read_text(encoding="utf-8")
    difference = "\n".join(
        unified_diff(committed.splitlines(), live.splitlines(), "committed", "live", n=0, lineterm="")
    )
    assert live == committed, f"{__doc__}\n{difference}"


@pytest.mark.parametrize("drift", DRIFTS)
def test_the_snapshot_notices_what_autogenerate_does_not(database: Database, drift: str) -> None:
    with psycopg.connect(database.dsn) as connection:
        connection.execute(drift.encode())
    assert catalogue(database.dsn, database.role_prefix) != SNAPSHOT.read_text(encoding="utf-8")


def test_nothing_is_granted_to_everybody(database: Database) -> None:
    lines = catalogue(database.dsn, database.role_prefix).splitlines()
    assert [line for line in lines if line.endswith(" to PUBLIC")] == []


def test_no_function_needs_a_superuser_to_be_created(database: Database) -> None:
    """PostgreSQL lets only a superuser write a SET clause for a setting it does not know, `wakeful.tenant` included.

    Hosted databases give out no superuser: such a function sets it with set_config() and sets it back before it
    returns (an error rolls it back by itself).
    """
    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute(
            """
            SELECT p.oid::regprocedure::text FROM pg_proc AS p
             WHERE p.pronamespace = 'wakeful'::regnamespace
               AND EXISTS (SELECT FROM unnest(p.proconfig) AS setting WHERE split_part(setting, '=', 1) LIKE '%.%')
            """
        ).fetchall()
    assert rows == []

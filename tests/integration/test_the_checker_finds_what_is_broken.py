"""Every rule of the checker: silent on a database that came about by work, and found when its rows are broken."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.database import ROLE_PREFIX, Database, database_from

from wakeful.embedded import EmbeddedPostgres
from wakeful.faults.checker import Checked, ServerWatch, check_database, check_effects, check_snapshot
from wakeful.faults.checker.records import Call
from wakeful.faults.crashes import Lab, parse_experiment

SHAPES = ("sequence", "batch", "question", "child")

BROKEN = {
    "sequence order is commit order": "UPDATE events SET created_at = created_at + '1 s' WHERE sequence = 3",
    "counter ahead of the log": "UPDATE sessions SET next_event_sequence = 3",
    "session knows its last event": "UPDATE sessions SET last_event_at = last_event_at - interval '1 h'",
    "one terminal event per run": "DELETE FROM events WHERE event_type = 'run.completed'",
    "an end has its time": "UPDATE runs SET finished_at = NULL",
    "only RUNNING is leased": "UPDATE runs SET lease_owner = id",
    "nothing after the end": "UPDATE events SET sequence = sequence + 100 WHERE event_type = 'tool.call.started'",
    "epochs grow": "UPDATE events SET payload = payload || '{\"epoch\": 1}' WHERE event_type = 'run.resumed'",
    "no write of a stale epoch": (
        "UPDATE events SET payload = payload || '{\"epoch\": 0}' WHERE event_type = 'tool.call.started'"
    ),
    "only expired leases are counted": "UPDATE runs SET lease_expirations = 2",
    "every crash keeps its cause": "UPDATE runs SET attempt_failures = '[{}, {}]'",
    "fenced once per epoch": (
        "INSERT INTO events SELECT tenant_id, session_id, sequence + 100 + n, gen_random_uuid(), run_id, 'run.fenced', "
        "1, 'worker', actor_id, '{\"epoch\": 1}', NULL, created_at FROM events, generate_series(1, 2) AS n "
        "WHERE event_type = 'run.completed'"
    ),
    "a turn follows answered calls": "DELETE FROM events WHERE event_type = 'tool.call.completed'",
    "each step once, in order": (
        "UPDATE events SET payload = payload || '{\"step\": 7}' "
        "WHERE event_type IN ('assistant.message.created', 'model.response.completed')"
    ),
    "a message has its model response": "DELETE FROM events WHERE event_type = 'model.response.completed'",
    "each batch counted once": "UPDATE runs SET tool_call_count = tool_call_count + 1",
    "a started call has its row": "DELETE FROM tool_invocations",
    "no non-idempotent call starts twice": (
        "INSERT INTO events SELECT tenant_id, session_id, sequence + 1000, gen_random_uuid(), run_id, event_type, 1, "
        "actor_type, actor_id, payload, NULL, created_at FROM events WHERE event_type = 'tool.call.started'"
    ),
    "no call starts after its result": (
        "UPDATE events SET sequence = sequence + 1000 WHERE event_type = 'tool.call.started'"
    ),
    "one result per call": (
        "INSERT INTO events SELECT tenant_id, session_id, sequence + 1000, gen_random_uuid(), run_id, event_type, 1, "
        "actor_type, actor_id, payload, NULL, created_at FROM events WHERE event_type = 'tool.call.completed'"
    ),
    "a result has its call": "DELETE FROM tool_invocations",
    "refused and denied calls never started": (
        "UPDATE events SET event_type = 'tool.call.denied' WHERE event_type = 'tool.call.completed'"
    ),
    "a result follows its turn": (
        "UPDATE events SET sequence = sequence + 1000 WHERE event_type IN ('assistant.message.created', "
        "'model.response.completed')"
    ),
    "an ended run has answered calls": "DELETE FROM events WHERE event_type = 'tool.call.completed'",
    "row and log agree": "UPDATE runs SET step = step + 1",
    "a call has its turn": "UPDATE tool_invocations SET step = step + 40",
    "no run is left behind": "UPDATE runs SET status = 'QUEUED'",
    "no time lies in the future": "UPDATE runs SET updated_at = clock_timestamp() + interval '1 h'",
    "a checkpoint lies within the log and its epoch": "UPDATE run_checkpoints SET last_event_sequence = 10000",
    "a child's result reaches its parent": (
        "UPDATE runs SET result_delivered_at = NULL WHERE parent_run_id IS NOT NULL"
    ),
}
UNREACHABLE = {"sequence unique"}
"""Refused by the table's own constraint, and checked all the same."""


@pytest.fixture(scope="module")
def worked(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[Database]:
    """A database in which runs of several shapes ended, one of them after a crash."""
    with database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as clone:
        with Lab(clone.dsn, role_prefix=clone.role_prefix) as lab:
            for shape in SHAPES:
                lab.points(shape)
            assert lab.perform(parse_experiment("sequence:28:before")).landed
        yield clone


@pytest.fixture(scope="module")
def lawless(worked: Database) -> Iterator[psycopg.Connection[Any]]:
    """The same, in a transaction in which nothing is checked by the database."""
    with psycopg.connect(worked.dsn) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute("SET LOCAL search_path = wakeful")
        for table, constraint in connection.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint "
            "WHERE contype = 'c' AND connamespace = 'wakeful'::regnamespace"
        ).fetchall():
            connection.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{constraint}"'.encode())
        connection.execute("DROP INDEX uq_runs_active_in_session")
        yield connection
        connection.rollback()


@pytest.fixture
def broken(lawless: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    with lawless.transaction(force_rollback=True):
        yield lawless


def rules(connection: psycopg.Connection[Any]) -> set[str]:
    checked = Checked()
    tenants = connection.execute("SELECT DISTINCT tenant_id FROM wakeful.runs").fetchall()
    for (tenant,) in tenants:
        check_snapshot(connection, tenant, checked, settled=True)
    return {finding.rule for finding in checked.findings}


def test_what_came_about_by_work_is_without_findings(worked: Database) -> None:
    checked = check_database(worked.dsn, role_prefix=worked.role_prefix, settled=True)
    assert checked.findings == []
    assert (checked.tenants, checked.runs) == (5, 6)
    assert checked.events > 60


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_row_is_found(broken: psycopg.Connection[Any], rule: str) -> None:
    changed = broken.execute(BROKEN[rule].encode())
    assert changed.rowcount > 0, "nothing was broken"
    assert rule in rules(broken)


CALL = UUID(int=1)


def call(status: str, kind: str = "non_idempotent") -> Call:
    return Call(CALL, UUID(int=2), "model", 1, 0, "pay", kind, "key", status, None)


@pytest.mark.parametrize(
    ("status", "times", "rule"),
    [
        ("COMPLETED", 1, None),
        ("UNCERTAIN", 0, None),
        ("UNCERTAIN", 1, None),
        ("FAILED", 0, None),
        ("COMPLETED", 2, "non-idempotent effects happen once, or are said to be uncertain"),
        ("COMPLETED", 0, "non-idempotent effects happen once, or are said to be uncertain"),
        ("UNCERTAIN", 2, "non-idempotent effects happen once, or are said to be uncertain"),
        ("FAILED", 1, "non-idempotent effects happen once, or are said to be uncertain"),
        ("DENIED", 1, "what was not run did not happen"),
        ("CANCELLED", 1, "what was not run did not happen"),
    ],
)
def test_the_ledger_judges_what_the_rows_say(status: str, times: int, rule: str | None) -> None:
    found = [each.rule for each in check_effects({"key": times}, [call(status)], tools=frozenset({"pay"}))]
    assert found == ([] if rule is None else [rule])


def test_an_effect_that_nobody_called_and_one_that_never_happened_are_found() -> None:
    found = [
        each.rule for each in check_effects({"other": 1}, [call("COMPLETED", "idempotent")], tools=frozenset({"pay"}))
    ]
    assert found == ["what completed happened", "nothing happens that nobody called"]


def test_what_is_left_open_is_found(database: Database) -> None:
    watch = ServerWatch(database.dsn, patience_seconds=0.2)
    watch.begin()
    assert list(watch.findings(at_rest=True)) == []
    with psycopg.connect(database.dsn) as left:
        left.execute("SELECT 1")
        assert "every connection is given back" in {each.rule for each in watch.findings(at_rest=True)}


def test_a_deadlock_is_found(database: Database) -> None:
    watch = ServerWatch(database.dsn)
    watch.begin()
    options = "-c deadlock_timeout=10ms"
    with (
        psycopg.connect(database.dsn, options=options) as one,
        psycopg.connect(database.dsn, options=options) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        one.execute("SELECT pg_advisory_xact_lock(1)")
        other.execute("SELECT pg_advisory_xact_lock(2)")
        waiting = thread.submit(one.execute, "SELECT pg_advisory_xact_lock(2)")
        lost = [
            isinstance(error, psycopg.errors.DeadlockDetected)
            for error in (_error(lambda: other.execute("SELECT pg_advisory_xact_lock(1)")), _roll_back(other, waiting))
        ]
        assert lost.count(True) == 1, "there was no deadlock"
        one.rollback()
    assert "no deadlock" in {each.rule for each in watch.findings(at_rest=True)}


def _error(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except psycopg.Error as error:
        return error
    return None


def _roll_back(holder: psycopg.Connection[Any], waiting: Future[Any]) -> Exception | None:
    """Let go of what the other one waits for, and say how it fared."""
    holder.rollback()
    return _error(waiting.result)

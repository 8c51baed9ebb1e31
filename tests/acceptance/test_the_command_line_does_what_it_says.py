"""Every command of `wakeful run`, `session` and `events` on a real database with a real worker."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from support.command_line import TESTS, CommandLine, Said
from support.database import ROLE_PREFIX, database_from

from wakeful.bootstrap.children import Child
from wakeful.embedded import EmbeddedPostgres

pytestmark = pytest.mark.timeout(600)

RUN_KEYS = {
    "id", "session", "tenant", "principal", "agent", "agent_version", "status", "priority", "step", "tool_call_count",
    "token_count", "attempts", "lease_expirations", "suspect", "failure", "metadata", "parent", "scheduled_for",
    "deadline", "cancel_requested_at", "created_at", "started_at", "finished_at", "updated_at",
}  # fmt: skip


@pytest.fixture(scope="module")
def wakeful(
    postgres: EmbeddedPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommandLine]:
    """A command line whose database has a worker and a scheduler."""
    folder: Path = tmp_path_factory.mktemp("command-line")
    with database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as database:
        line = CommandLine(
            {
                "WAKEFUL_DATABASE_URL": database.dsn,
                "WAKEFUL_ROLE_PREFIX": database.role_prefix,
                "WAKEFUL_ARTIFACTS_DIRECTORY": str(folder / "artifacts"),
                "WAKEFUL_POLL_INTERACTIVE_MS": "50",
                "WAKEFUL_HEARTBEAT_SECONDS": "1",
            }
        )
        environment = {**line.settings, "PYTHONPATH": str(TESTS)}
        children = [
            Child(
                ["worker", "--app", "support.desk:app"], environment=environment, log=folder / "worker", name="worker"
            ),
            Child(["scheduler"], environment=environment, log=folder / "scheduler", name="scheduler"),
        ]
        try:
            for child in children:
                child.start()
            for child in children:
                child.wait_ready()
            yield line
        finally:
            for child in children:
                child.stop()
            assert [child.exit_code for child in children] == [0, 0], (folder / "worker").read_text()


@pytest.fixture
def session(wakeful: CommandLine) -> str:
    return wakeful("session", "create", "--agent", "desk").out.strip()


def submitted(wakeful: CommandLine, text: str) -> str:
    return wakeful("run", "submit", "--agent", "desk", text).out.strip()


def open_calls(wakeful: CommandLine, run: str) -> list[dict[str, str]]:
    """Wait for the run to wait for a person."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        shown = wakeful("run", "show", run, "--json").json
        if shown["run"]["status"].startswith("WAITING"):
            calls: list[dict[str, str]] = shown["open_calls"]
            return calls
    raise AssertionError(f"run {run} does not wait: {shown['run']}")


def test_submit_and_wait_prints_the_reply_and_nothing_else_on_stdout(wakeful: CommandLine) -> None:
    said = wakeful("run", "submit", "--agent", "desk", "--wait", "--timeout-seconds", "60", "hello")
    assert (said.code, said.out) == (0, "You said: hello\n")
    assert "in session" in said.err


def test_a_failed_run_that_was_waited_for_exits_7(wakeful: CommandLine) -> None:
    said = wakeful("run", "submit", "--agent", "desk", "--wait", "--json", "fail")
    assert (said.code, said.out, said.error["code"]) == (7, "", "unwilling")


def test_waiting_too_long_exits_8(wakeful: CommandLine) -> None:
    said = wakeful("run", "submit", "--agent", "desk", "--wait", "--timeout-seconds", "0.2", "--json", "ask")
    assert (said.code, said.error["code"]) == (8, "timeout")


def test_one_key_gives_one_run_and_another_request_exits_4(wakeful: CommandLine) -> None:
    key = str(uuid4())
    arguments = ("run", "submit", "--agent", "desk", "--key", key, "--json")
    first, again = wakeful(*arguments, "hello").json, wakeful(*arguments, "hello").json
    assert (first["created"], again["created"], first["run"]) == (True, False, again["run"])
    conflict = wakeful(*arguments, "goodbye")
    assert (conflict.code, conflict.error["code"]) == (4, "idempotency_conflict")


def test_runs_are_listed_with_every_documented_field(wakeful: CommandLine, session: str) -> None:
    run = wakeful("run", "submit", "--session", session, "hello").out.strip()
    [row] = wakeful("run", "list", "--session", session, "--json").json
    assert set(row) == RUN_KEYS
    assert (row["id"], row["session"], row["agent"], row["priority"]) == (run, session, "desk", "interactive")
    assert run in wakeful("run", "list", "--session", session).out


def test_show_draws_steps_with_calls_and_times(wakeful: CommandLine) -> None:
    run = wakeful("run", "submit", "--agent", "desk", "--wait", "--json", "wire").json["run"]
    shown = wakeful("run", "show", run, "--json").json
    steps = [entry for entry in shown["timeline"] if "step" in entry]
    [call] = steps[0]["calls"]
    assert (call["tool"], call["status"], call["result"]["status"]) == ("wire", "UNCERTAIN", "UNCERTAIN")
    assert steps[1]["content"] == "wire: UNCERTAIN"
    drawn = wakeful("run", "show", run, NO_COLOR="1").out
    assert "step 1" in drawn and "wire({})" in drawn and "UNCERTAIN" in drawn and "completed after 2 steps" in drawn
    assert "\x1b[" not in drawn


def test_watch_prints_the_events_until_the_end(wakeful: CommandLine) -> None:
    run = submitted(wakeful, "hello")
    said = wakeful("run", "watch", run, "--json")
    events = [json.loads(line) for line in said.out.splitlines()]
    assert said.code == 0
    assert [event["type"] for event in events][-1] == "run.completed"
    assert {event["run"] for event in events} == {run}
    rest = wakeful("run", "watch", run, "--json", "--after", str(events[1]["sequence"]))
    assert [json.loads(line) for line in rest.out.splitlines()] == events[2:]


def test_watching_a_run_that_fails_exits_7(wakeful: CommandLine) -> None:
    said = wakeful("run", "watch", submitted(wakeful, "fail"))
    assert said.code == 7
    assert "run.failed" in said.out
    assert "unwilling" in said.err


def test_a_question_is_shown_answered_once_and_the_run_goes_on(wakeful: CommandLine) -> None:
    run = submitted(wakeful, "ask-twice")
    first, second = open_calls(wakeful, run)
    assert (first["question"], first["status"]) == ("First?", "AWAITING_INPUT")
    assert "First?" in wakeful("run", "show", run).err
    which = wakeful("run", "answer", run, "one", "--json")
    assert (which.code, which.error["code"]) == (4, "conflict")
    assert wakeful("run", "answer", run, "one", "--call", first["id"], "--json").json["applied"] is True
    twice = wakeful("run", "answer", run, "other", "--call", first["id"], "--json")
    assert (twice.code, twice.error["code"]) == (4, "already_answered")
    assert wakeful("run", "answer", run, "-", "--call", second["id"], stdin=b"zwei\n").code == 0
    assert wakeful("run", "watch", run).code == 0


@pytest.mark.parametrize(("verb", "result"), [("approve", "refund: COMPLETED"), ("deny", "refund: DENIED")])
def test_an_approval_is_given_or_denied(wakeful: CommandLine, verb: str, result: str) -> None:
    run = submitted(wakeful, "refund")
    [asked] = open_calls(wakeful, run)
    assert json.loads(asked["arguments"]) == {"order": 7}
    assert wakeful("run", verb, run, "--note", "so be it").code == 0
    assert wakeful("run", "watch", run).code == 0
    shown = wakeful("run", "show", run, "--json").json
    assert [entry for entry in shown["timeline"] if "step" in entry][-1]["content"] == result


def test_an_uncertain_call_is_listed_and_resolved_once(wakeful: CommandLine) -> None:
    run = wakeful("run", "submit", "--agent", "desk", "--wait", "--json", "wire").json["run"]
    [uncertain] = wakeful("run", "review", run, "--json").json
    assert (uncertain["tool"], uncertain["status"], uncertain["resolved_at"]) == ("wire", "UNCERTAIN", None)
    resolve = ("run", "review", run, "--call", uncertain["id"], "--did-not-happen", "--note", "asked the bank")
    assert wakeful(*resolve).code == 0
    assert wakeful(*resolve).code == 4
    [resolved] = wakeful("run", "review", run, "--json").json
    assert (resolved["status"], resolved["resolved_at"] is None) == ("UNCERTAIN", False)
    assert wakeful("run", "review", run, "--note", "alone").code == 2


def test_a_running_run_is_cancelled(wakeful: CommandLine) -> None:
    run = submitted(wakeful, "wait")
    assert wakeful("run", "cancel", run, "--reason", "enough", "--json").json["run"] == run
    assert wakeful("run", "watch", run).code == 7
    assert wakeful("run", "list", "--status", "cancelled", "--json").json[0]["id"] == run


def test_sessions_are_opened_once_listed_and_closed(wakeful: CommandLine) -> None:
    chosen, owner = str(uuid4()), str(uuid4())
    create = ("session", "create", "--agent", "desk", "--id", chosen, "--title", "One", "--tenant", owner, "--json")
    assert wakeful(*create).json == wakeful(*create).json
    [row] = wakeful("session", "list", "--tenant", owner, "--json").json
    assert (row["id"], row["title"], row["status"], row["tenant"]) == (chosen, "One", "active", owner)
    assert wakeful("session", "close", chosen, "--tenant", owner, "--json").json["status"] == "closed"
    refused = wakeful("run", "submit", "--session", chosen, "--tenant", owner, "--json", "hello")
    assert (refused.code, refused.error["code"]) == (4, "session_closed")


@pytest.mark.spec("LOG-7")
def test_sessions_are_listed_by_latest_activity(wakeful: CommandLine) -> None:
    owner = ("--tenant", str(uuid4()), "--json")
    first, second = (wakeful("session", "create", "--agent", "desk", *owner).json["id"] for _ in range(2))
    assert [row["id"] for row in wakeful("session", "list", *owner).json] == [second, first]
    wakeful("run", "submit", "--session", first, *owner, "hello")
    assert [row["id"] for row in wakeful("session", "list", *owner).json] == [first, second]
    assert [row["id"] for row in wakeful("session", "list", "--after", first, *owner).json] == [second]


def test_events_are_read_in_order_from_where_one_left_off(wakeful: CommandLine, session: str) -> None:
    wakeful("run", "submit", "--session", session, "--wait", "hello")
    events = [json.loads(line) for line in wakeful("events", "tail", session, "--json").out.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("session.created", "run.completed")
    assert set(events[0]) == {
        "sequence", "type", "version", "id", "session", "run", "actor", "payload", "trace_id", "created_at",
    }  # fmt: skip
    rest = wakeful("events", "tail", session, "--json", "--after", str(events[0]["sequence"]), "--limit", "2")
    assert [json.loads(line) for line in rest.out.splitlines()] == events[1:3]


def test_doctor_finds_nothing_to_do(wakeful: CommandLine) -> None:
    found = wakeful("doctor", "--json", WAKEFUL_APP="support.desk:app").json
    assert (found["healthy"], found["problems"]) == (True, [])
    assert found["database"]["revision"] == found["database"]["expected_revision"]
    assert found["queue"]["last_sweep_seconds"] < 60


def test_doctor_names_runs_that_nobody_serves(wakeful: CommandLine) -> None:
    run = wakeful("run", "submit", "--agent", "nobody", "hello").out.strip()
    said = wakeful("doctor", WAKEFUL_APP="support.desk:app")
    wakeful("run", "cancel", run)
    assert said.code == 1
    assert "of agent nobody, which support.desk:app does not serve" in said.out


def failure(said: Said) -> tuple[int, str]:
    return said.code, said.error["code"]


def test_bad_input_exits_2_naming_what_was_wrong(wakeful: CommandLine, session: str) -> None:
    unknown = str(uuid4())
    assert failure(wakeful("run", "show", unknown, "--json")) == (2, "not_found")
    assert failure(wakeful("run", "show", "seven", "--json")) == (2, "invalid_input")
    assert failure(wakeful("events", "tail", unknown, "--json")) == (2, "not_found")
    assert failure(wakeful("run", "submit", "--json", "hello")) == (2, "invalid_input")
    submit = ("run", "submit", "--session", session, "--json")
    assert failure(wakeful(*submit, "-", stdin=b"a\0b")) == (2, "invalid_payload")
    assert failure(wakeful(*submit, "-", stdin=b"\xff")) == (2, "invalid_input")
    assert failure(wakeful(*submit, "--metadata", "[1]", "hello")) == (2, "invalid_input")
    assert failure(wakeful(*submit, "--metadata", "[" * 20_000, "hello")) == (2, "invalid_input")
    assert failure(wakeful(*submit, "--at", "2030-01-01T00:00:00", "hello")) == (2, "invalid_input")
    assert failure(wakeful(*submit, "--priority", "urgent", "hello")) == (2, "invalid_input")
    assert wakeful("run", "submit", "--no-such-option").code == 2
    assert wakeful("events", "tail", session, "--json").out.count("\n") == 1


def test_another_owners_run_is_not_there(wakeful: CommandLine) -> None:
    run = submitted(wakeful, "hello")
    assert failure(wakeful("run", "show", run, "--json", "--principal", "somebody")) == (2, "not_found")
    assert failure(wakeful("run", "show", run, "--json", "--tenant", "elsewhere")) == (2, "not_found")

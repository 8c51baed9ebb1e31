"""Wrong addresses, wrong revisions, wrong settings: one line, one exit code, nothing changed."""

import psycopg
import pytest
from support.command_line import CommandLine
from support.database import Database

pytestmark = pytest.mark.timeout(300)

OLD_REVISION = "74661a8adfec"
SECRET = "do-not-print-me"
COMMANDS = {
    "submit": ("run", "submit", "--agent", "desk", "hello"),
    "worker": ("worker", "--app", "support.desk:app"),
    "scheduler": ("scheduler",),
}


def settings_of(database: Database) -> dict[str, str]:
    return {"WAKEFUL_DATABASE_URL": database.dsn, "WAKEFUL_ROLE_PREFIX": database.role_prefix}


@pytest.mark.spec("MIG-1")
@pytest.mark.gate("revision_pinned")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_at_another_revision_nothing_starts_and_nothing_is_migrated(
    database: Database, command: tuple[str, ...]
) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as admin:
        row = admin.execute("SELECT version_num FROM wakeful.alembic_version").fetchone()
        assert row is not None
        admin.execute("UPDATE wakeful.alembic_version SET version_num = %s", [OLD_REVISION])
        said = CommandLine(settings_of(database))(*command)
        assert said.code == 1
        assert said.out == ""
        assert OLD_REVISION in said.err and str(row[0]) in said.err and "wakeful db upgrade" in said.err
        assert admin.execute("SELECT version_num FROM wakeful.alembic_version").fetchone() == (OLD_REVISION,)
        assert admin.execute("SELECT count(*) FROM wakeful.runs").fetchone() == (0,)


@pytest.mark.gate("revision_pinned")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_without_a_schema_nothing_starts_and_none_is_made(empty_database: Database, command: tuple[str, ...]) -> None:
    said = CommandLine(settings_of(empty_database))(*command)
    assert said.code == 1
    assert "wakeful db upgrade" in said.err
    with psycopg.connect(empty_database.dsn) as admin:
        assert admin.execute("SELECT to_regnamespace('wakeful')").fetchone() == (None,)


@pytest.mark.parametrize("command", [*COMMANDS.values(), ("doctor",), ("db", "check"), ("db", "upgrade")], ids=str)
def test_an_unreachable_database_exits_6_and_the_password_is_not_said(command: tuple[str, ...]) -> None:
    line = CommandLine({"WAKEFUL_DATABASE_URL": f"postgresql://ada:{SECRET}@127.0.0.1:1/nowhere"})
    said = line(*command)
    assert said.code == 6
    assert "127.0.0.1" in said.out + said.err
    assert SECRET not in said.out + said.err


def test_the_schema_is_upgraded_checked_and_then_usable(empty_database: Database) -> None:
    line = CommandLine(settings_of(empty_database))
    before = line("db", "check", "--json")
    assert before.code == 1
    assert '"current_revision": null' in before.out
    upgraded = line("db", "upgrade", "--json").json
    assert (upgraded["from_revision"], upgraded["mode"]) == (None, "roles")
    checked = line("db", "check", "--json").json
    assert (checked["usable"], checked["current_revision"]) == (True, upgraded["to_revision"])
    assert line("db", "upgrade").out.startswith(f"schema: at {upgraded['to_revision']}")
    assert line("run", "submit", "--agent", "desk", "hello").code == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "WAKEFUL_DATABASE_URL"),
        ({"WAKEFUL_DATABSE_URL": "x"}, "did you mean WAKEFUL_DATABASE_URL?"),
        ({"WAKEFUL_DATABASE_URL": f"mysql://ada:{SECRET}@db/x"}, "must begin with postgresql://"),
        ({"WAKEFUL_DATABASE_URL": f"postgresql://ada:{SECRET}@db:port/x"}, "address"),
        ({"WAKEFUL_DATABASE_URL": "postgresql://db/x", "WAKEFUL_LEASE_SECONDS": SECRET}, "lease_seconds"),
        ({"WAKEFUL_DATABASE_URL": "postgresql://db/x", "WAKEFUL_BROKER_URL": f"http://:{SECRET}@b"}, "broker_url"),
        ({"WAKEFUL_CONFIG": "/nowhere/wakeful.toml"}, "/nowhere/wakeful.toml"),
    ],
)
def test_wrong_settings_exit_2_and_say_which_without_the_value(settings: dict[str, str], said: str) -> None:
    listed = CommandLine(settings)("run", "list")
    assert listed.code == 2
    assert said in listed.err
    assert SECRET not in listed.err


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("no_such_module:app", "no module no_such_module"),
        ("support.desk:nothing", "did you mean support.desk:app?"),
        ("support.desk:refund", "holds no App as refund"),
    ],
)
def test_an_app_that_is_none_exits_2(app: str, said: str) -> None:
    refused = CommandLine({"WAKEFUL_DATABASE_URL": "postgresql://127.0.0.1:1/x"})("worker", "--app", app)
    assert (refused.code, said in refused.err) == (2, True), refused.err


def test_floors_that_do_not_fit_exit_2() -> None:
    line = CommandLine({"WAKEFUL_DATABASE_URL": "postgresql://127.0.0.1:1/x"})
    worker = ("worker", "--app", "support.desk:app", "--slots", "4")
    assert line(*worker, "--floor", "interactive=8").code == 2
    assert line(*worker, "--floor", "interactive").code == 2
    assert line(*worker, "--class", "urgent").code == 2

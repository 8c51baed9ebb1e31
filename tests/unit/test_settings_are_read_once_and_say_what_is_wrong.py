"""Settings: sources in order, unknown names, secrets that are never shown."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from wakeful.bootstrap.redaction import redacted
from wakeful.bootstrap.settings import given_settings, load_settings
from wakeful.domain.errors import ConfigurationError

URL = "postgresql://ada:hunter2@db/app"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WAKEFUL_")]:
        monkeypatch.delenv(name)


def test_an_argument_wins_over_the_environment_and_that_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "wakeful.toml"
    file.write_text('slots = 1\nlease_seconds = 11\ntenant = "file"\n')
    monkeypatch.setenv("WAKEFUL_CONFIG", str(file))
    monkeypatch.setenv("WAKEFUL_SLOTS", "2")
    monkeypatch.setenv("WAKEFUL_TENANT", "environment")
    settings = load_settings(tenant="argument")
    assert (settings.tenant, settings.slots, settings.lease_seconds) == ("argument", 2, 11)


@pytest.mark.parametrize("text", ["slots = 1\nslot = 2\n", "SLOTS = 1\n"])
def test_an_unknown_name_in_the_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    file = tmp_path / "wakeful.toml"
    file.write_text(text)
    monkeypatch.setenv("WAKEFUL_CONFIG", str(file))
    with pytest.raises(ConfigurationError, match="unknown setting in"):
        load_settings()


def test_an_unknown_variable_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEFUL_LEASE", "3")
    with pytest.raises(ConfigurationError, match="did you mean WAKEFUL_LEASE_SECONDS"):
        load_settings()


def test_the_test_suites_own_variables_are_nobodys_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEFUL_TEST_POSTGRES_BIN", "/usr/bin")
    monkeypatch.setenv("WAKEFUL_TRAJECTORIES", "/data")
    assert load_settings().slots == 64


def test_no_secret_is_shown() -> None:
    settings = load_settings(database_url=URL, broker_url="redis://:hunter2@b:1/0")
    for text in (str(settings), repr(settings), str(settings.described())):
        assert "hunter2" not in text
    assert settings.described()["database_url"] == "postgresql://ada:***@db/app"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ada:a:b%40@db/x", "postgresql://ada:***@db/x"),
        ("postgresql://db/x?user=ada&password=hunter2&port=1", "postgresql://db/x?user=ada&password=***&port=1"),
        ("host=db password='hun ter2' user=ada", "host=db password=*** user=ada"),
        ("redis://:hunter2@b:6379/0", "redis://:***@b:6379/0"),
        ("postgresql://db:5432/x", "postgresql://db:5432/x"),
    ],
)
def test_passwords_are_taken_out_of_every_form_of_address(address: str, shown: str) -> None:
    assert redacted(address) == shown


def test_the_heartbeat_is_a_third_of_the_lease_unless_it_is_set() -> None:
    assert load_settings().heartbeat == timedelta(seconds=10)
    assert load_settings(lease_seconds=2.0).heartbeat == timedelta(seconds=2 / 3)
    with pytest.raises(ConfigurationError, match="half of lease_seconds"):
        load_settings(lease_seconds=2.0, heartbeat_seconds=1.5)


def test_the_direct_address_is_the_pooled_one_unless_it_is_set() -> None:
    assert load_settings(database_url=URL).direct_url() == URL
    assert (
        load_settings(database_url=URL, direct_database_url="postgresql://direct/app")
        .direct_url()
        .endswith("direct/app")
    )


def test_what_a_child_is_given_is_what_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given_settings(database_url=URL, lease_seconds=2, prepared_statements=False)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings().model_dump() == settings.model_dump()
    assert given_settings(**settings.explicit()) == settings


def test_settings_of_ones_own_take_nothing_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEFUL_SLOTS", "7")
    assert given_settings(database_url=URL).slots == 64
    with pytest.raises(ConfigurationError, match="unknown setting slot: did you mean slots"):
        given_settings(slot=1)

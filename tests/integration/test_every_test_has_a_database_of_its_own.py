"""The fixtures keep their promises: clones are migrated and apart, and what a test leaves open fails it."""

import psycopg
import pytest
import redis
from support import database as fixtures
from support.database import ROLE_PREFIX, TEMPLATE, Database, database_from

from wakeful.embedded import EmbeddedPostgres


def test_a_clone_is_at_the_head_revision(database: Database) -> None:
    from wakeful.persistence.revision import EXPECTED_REVISION

    with psycopg.connect(database.dsn) as connection:
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert rows == [(EXPECTED_REVISION,)]


def test_what_one_clone_holds_another_does_not(
    postgres: EmbeddedPostgres, migrated_template: str, database: Database
) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE mine ()")
    with (
        database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as other,
        psycopg.connect(other.dsn) as connection,
    ):
        assert connection.execute("SELECT to_regclass('mine')").fetchone() == (None,)


def test_a_transaction_left_open_fails_the_test_and_names_the_statement(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixtures, "CLOSE_SECONDS", 0.1)
    with (
        pytest.raises(pytest.fail.Exception, match=r"(?s)1 connection.*idle in transaction.*SELECT 42"),
        database_from(postgres, "template0", role_prefix="") as fresh,
    ):
        connection = psycopg.connect(fresh.dsn)
        connection.execute("SELECT 42")
    connection.close()


def test_a_connection_left_open_fails_the_test(postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixtures, "CLOSE_SECONDS", 0.1)
    with (
        pytest.raises(pytest.fail.Exception, match=r"1 connection\(s\) left open"),
        database_from(postgres, "template0", role_prefix="") as fresh,
    ):
        connection = psycopg.connect(fresh.dsn, autocommit=True)
    connection.close()


def test_an_empty_database_takes_its_roles_with_it(postgres: EmbeddedPostgres) -> None:
    with (
        database_from(postgres, "template0", role_prefix="gone_") as fresh,
        psycopg.connect(fresh.dsn, autocommit=True) as connection,
    ):
        connection.execute("CREATE ROLE gone_app")
        connection.execute("CREATE TABLE kept ()")
        connection.execute("GRANT SELECT ON kept TO gone_app")
    fixtures.drop_roles(postgres, "gone_")
    with psycopg.connect(postgres.dsn()) as connection:
        assert connection.execute("SELECT count(*) FROM pg_roles WHERE rolname = 'gone_app'").fetchone() == (0,)


def test_the_template_has_no_connections_of_its_own(postgres: EmbeddedPostgres, migrated_template: str) -> None:
    assert migrated_template == TEMPLATE
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        assert fixtures.clients_left(admin, TEMPLATE) == []


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_finds_the_cache_empty(valkey: str, time: str) -> None:
    with redis.Redis.from_url(valkey, decode_responses=True) as client:
        assert client.keys() == []
        client.set("left", time)

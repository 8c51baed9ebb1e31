"""`upgrade` creates the roles when it may, says what an administrator has to run when it may not, and goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import pytest
from support.catalogue import catalogue
from support.database import Database
from support.schema import as_role, as_user, insert_sample_rows

from wakeful.domain.errors import ConfigurationError, NotAllowed, Unavailable
from wakeful.persistence.roles import Mode, Role, default_prefix, role_name, role_option, verify_role_statement
from wakeful.persistence.schema import check, sql_for_administrator, upgrade


@dataclass(frozen=True)
class Owned:
    """An empty database owned by a login without any special right, and one login that only serves."""

    database: Database
    owner: str
    service: str

    @property
    def dsn(self) -> str:
        return as_user(self.database.dsn, self.owner)

    @property
    def service_dsn(self) -> str:
        return as_user(self.database.dsn, self.service)

    @property
    def prefix(self) -> str:
        return self.database.role_prefix

    def administer(self, *statements: str) -> None:
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@pytest.fixture
def owned(empty_database: Database) -> Iterator[Owned]:
    prefix = empty_database.role_prefix
    found = Owned(empty_database, f"{prefix}owner", f"{prefix}service")
    found.administer(
        f'CREATE ROLE "{found.owner}" LOGIN',
        f'CREATE ROLE "{found.service}" LOGIN',
        f'ALTER DATABASE "{empty_database.name}" OWNER TO "{found.owner}"',
    )
    yield found
    # A role that has granted memberships cannot be dropped before them.
    found.administer(f'DROP OWNED BY "{found.owner}" CASCADE')


@pytest.fixture
def creating(owned: Owned) -> Owned:
    owned.administer(f'ALTER ROLE "{owned.owner}" CREATEROLE')
    return owned


def current_user(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT current_user").fetchone()
        assert row
        return str(row[0])


def test_a_login_that_may_create_roles_gets_all_three_and_may_become_them(creating: Owned) -> None:
    result = upgrade(creating.dsn, role_prefix=creating.prefix)
    assert result.mode is Mode.ROLES
    assert set(result.roles_created) == {role_name(creating.prefix, role) for role in Role}
    assert result.for_administrator == ()
    for role in Role:
        dsn = as_role(creating.dsn, creating.prefix, role)
        assert current_user(dsn) == role_name(creating.prefix, role)
    assert check(creating.dsn).usable


def test_from_postgresql_16_a_login_inherits_nothing_of_its_roles(creating: Owned) -> None:
    upgrade(creating.dsn, role_prefix=creating.prefix, logins=[creating.service])
    with psycopg.connect(creating.service_dsn) as connection:
        if connection.info.server_version < 160000:
            return  # there a membership cannot be told not to inherit; the exact policies are what protects
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT count(*) FROM wakeful.runs")


def test_other_logins_are_granted_the_roles_too(creating: Owned) -> None:
    upgrade(creating.dsn, role_prefix=creating.prefix, logins=[creating.service])
    dsn = as_role(creating.service_dsn, creating.prefix, Role.APP)
    assert current_user(dsn) == role_name(creating.prefix, Role.APP)
    assert check(creating.service_dsn, role_prefix=creating.prefix).usable


def test_a_login_that_was_not_granted_the_roles_is_told_what_to_run(creating: Owned) -> None:
    upgrade(creating.dsn, role_prefix=creating.prefix)
    report = check(creating.service_dsn, role_prefix=creating.prefix)
    assert not report.usable
    assert set(report.roles_not_granted) == {role_name(creating.prefix, role) for role in Role}
    assert f'TO "{creating.service}"' in " ".join(report.what_to_do)


def test_without_the_right_and_without_an_administrator_there_is_a_single_role_mode(owned: Owned) -> None:
    result = upgrade(owned.dsn, role_prefix=owned.prefix)
    assert result.mode is Mode.SINGLE_ROLE
    assert result.roles_created == ()
    report = check(owned.dsn)
    assert report.usable
    assert report.mode is Mode.SINGLE_ROLE
    assert report.weaker


def test_in_single_role_mode_only_the_transactions_scope_opens_the_view_of_all_tenants(owned: Owned) -> None:
    upgrade(owned.dsn, role_prefix=owned.prefix)
    for _ in range(2):
        insert_sample_rows(owned.database.dsn, uuid4())
    with psycopg.connect(owned.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM wakeful.runs").fetchone() == (0,)
        with connection.transaction():
            connection.execute("SELECT set_config('wakeful.scope', 'worker', true)")
            assert connection.execute("SELECT count(DISTINCT tenant_id) FROM wakeful.runs").fetchone() == (2,)
            assert connection.execute("SELECT count(*) FROM wakeful.events").fetchone() == (0,)
        connection.commit()
        assert connection.execute("SELECT count(*) FROM wakeful.runs").fetchone() == (0,)


def test_the_administrators_statements_turn_single_role_mode_into_roles(owned: Owned) -> None:
    first = upgrade(owned.dsn, role_prefix=owned.prefix)
    assert first.for_administrator == sql_for_administrator(owned.dsn, role_prefix=owned.prefix)
    owned.administer(*first.for_administrator)
    second = upgrade(owned.dsn)
    assert (second.mode, second.role_prefix, second.for_administrator) == (Mode.ROLES, owned.prefix, ())
    assert "wakeful.scope'::text, true) = 'worker'" not in catalogue(owned.database.dsn)
    assert check(owned.dsn).usable


def test_the_statements_are_the_same_schema_as_creating_the_roles_at_once(owned: Owned) -> None:
    owned.administer(*sql_for_administrator(owned.dsn, role_prefix=owned.prefix))
    upgrade(owned.dsn, role_prefix=owned.prefix)
    by_hand = catalogue(owned.database.dsn, owned.prefix)
    owned.administer(f'ALTER ROLE "{owned.owner}" CREATEROLE')
    upgrade(owned.dsn, role_prefix=owned.prefix)
    assert catalogue(owned.database.dsn, owned.prefix) == by_hand


def test_an_installation_with_roles_never_falls_back_to_one(owned: Owned) -> None:
    owned.administer(*sql_for_administrator(owned.dsn, role_prefix=owned.prefix))
    upgrade(owned.dsn, role_prefix=owned.prefix)
    with pytest.raises(NotAllowed, match="CREATE ROLE"):
        upgrade(owned.dsn, role_prefix=f"{owned.prefix}other")


def test_another_prefix_takes_everything_from_the_roles_of_the_first(creating: Owned) -> None:
    upgrade(creating.dsn, role_prefix=creating.prefix)
    upgrade(creating.dsn, role_prefix=f"{creating.prefix}new")
    assert f"{creating.prefix}_" not in catalogue(creating.database.dsn)
    assert check(creating.dsn).role_prefix == f"{creating.prefix}new"


def test_a_role_that_policies_do_not_bind_is_refused(creating: Owned) -> None:
    creating.administer(f'CREATE ROLE "{role_name(creating.prefix, Role.APP)}" BYPASSRLS')
    with pytest.raises(ConfigurationError, match="BYPASSRLS"):
        upgrade(creating.dsn, role_prefix=creating.prefix)


def test_a_login_that_may_not_create_the_schema_is_told_what_it_needs(owned: Owned) -> None:
    with pytest.raises(NotAllowed, match="CREATE on the database"):
        upgrade(owned.service_dsn, role_prefix=owned.prefix)


def test_a_database_that_cannot_be_reached_is_said_without_the_address_password() -> None:
    with pytest.raises(Unavailable) as error:
        upgrade("postgresql://somebody:hunter2@127.0.0.1:1/nothing")
    assert "hunter2" not in str(error.value)


def test_every_connection_can_ask_whether_it_took_its_role(database: Database) -> None:
    for role in Role:
        question = verify_role_statement(database.role_prefix, role).encode()
        with psycopg.connect(as_role(database.dsn, database.role_prefix, role)) as connection:
            assert connection.execute(question).fetchone() == (True,)
        with psycopg.connect(database.dsn) as connection:  # what is left when a pooler drops the option
            assert connection.execute(question).fetchone() == (False,)


@pytest.mark.parametrize("prefix", ["with space", "back\\slash", "quote'd", 'double"d', "percent%s", "ünïcode"])
def test_names_with_special_characters_work(empty_database: Database, prefix: str) -> None:
    whole = f"{empty_database.role_prefix}{prefix}"
    upgrade(empty_database.dsn, role_prefix=whole)
    before = catalogue(empty_database.dsn)
    for role in Role:
        with psycopg.connect(as_role(empty_database.dsn, whole, role)) as connection:
            assert connection.execute(verify_role_statement(whole, role).encode()).fetchone() == (True,)
            assert connection.execute("SELECT count(*) FROM wakeful.installation").fetchone() == (1,)
    upgrade(empty_database.dsn)
    assert catalogue(empty_database.dsn) == before


def test_a_default_prefix_contains_the_databases_name() -> None:
    assert default_prefix("shop") == "wakeful_shop"
    assert role_name(default_prefix("shop"), Role.APP) == "wakeful_shop_app"
    assert role_option("wakeful_shop", Role.WORKER) == "-c role=wakeful_shop_worker"


def test_a_long_databases_name_still_gives_a_name_of_its_own() -> None:
    one, other = default_prefix("d" * 63), default_prefix("d" * 62 + "e")
    assert one != other
    assert all(len(role_name(prefix, Role.READONLY)) <= 63 for prefix in (one, other))


@pytest.mark.parametrize("prefix", ["", "pg_mine", "p" * 60, "nul\0"])
def test_a_prefix_that_postgresql_could_not_use_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        role_name(prefix, Role.APP)

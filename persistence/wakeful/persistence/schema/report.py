"""`check`: what a database holds and what to do about it, without changing anything."""

from dataclasses import dataclass

from psycopg import sql
from sqlalchemy import Connection, StaticPool, create_engine

from wakeful.domain.errors import SchemaError
from wakeful.persistence.revision import EXPECTED_REVISION, current_revision, invalid_indexes
from wakeful.persistence.roles import Mode, Role
from wakeful.persistence.schema.facts import Direct, Facts, connect, facts_of, may_become
from wakeful.persistence.schema.provisioning import administrator_statements

__all__ = ["SchemaReport", "check", "sql_for_administrator"]


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """`usable` means: this code can serve with this login. Otherwise `what_to_do` says how to get there."""

    current_revision: str | None
    expected_revision: str
    login: str
    mode: Mode | None
    role_prefix: str
    roles_present: tuple[str, ...]
    roles_missing: tuple[str, ...]
    roles_not_granted: tuple[str, ...]
    """Roles that exist but that this login may not become."""
    invalid_indexes: tuple[str, ...]
    what_to_do: tuple[str, ...]
    weaker: tuple[str, ...]
    """What single-role mode does not give; empty with roles."""

    @property
    def usable(self) -> bool:
        return not self.what_to_do


WEAKER_WITH_ONE_ROLE = (
    "the worker's view of all tenants is a setting any statement can make, and it shows whole rows with content",
    "the login owns the tables: it could switch row-level security or the immutability of events off",
)


def check(dsn: str, *, role_prefix: str | None = None) -> SchemaReport:
    """Read everything with whatever rights this login has. Raises Unavailable and ConfigurationError only."""
    with connect(dsn) as connection:
        facts = facts_of(connection, role_prefix)
        not_granted = tuple(name for name in facts.present if not may_become(connection, facts, facts.login, name))
        app = facts.roles[Role.APP]
        if facts.recorded is None and app in facts.present and app not in not_granted:
            # A login that owns nothing reads even the revision as one of the roles.
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(app)))
            recorded = facts_of(connection, role_prefix).recorded
            mode = recorded[0] if recorded else None
        else:
            mode = facts.recorded[0] if facts.recorded else None
        current, broken = _revision(connection)
    if mode is Mode.SINGLE_ROLE:
        not_granted = ()
    return SchemaReport(
        current_revision=current,
        expected_revision=EXPECTED_REVISION,
        login=facts.login,
        mode=mode,
        role_prefix=facts.prefix,
        roles_present=facts.present,
        roles_missing=facts.missing,
        roles_not_granted=not_granted,
        invalid_indexes=broken,
        what_to_do=_advice(facts, current, broken, mode, not_granted),
        weaker=WEAKER_WITH_ONE_ROLE if mode is Mode.SINGLE_ROLE else (),
    )


def sql_for_administrator(dsn: str, *, role_prefix: str | None = None, logins: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Statements that create what is missing and grant it to this login and `logins`; nothing is executed."""
    with connect(dsn) as connection:
        facts = facts_of(connection, role_prefix)
    return administrator_statements(facts, tuple(dict.fromkeys((facts.login, *logins))))


def _revision(connection: Direct) -> tuple[str | None, tuple[str, ...]]:
    connection.autocommit = False
    engine = create_engine("postgresql+psycopg://", creator=lambda: connection, poolclass=StaticPool)
    with engine.connect() as reading:
        return _readable_revision(reading), invalid_indexes(reading)


def _readable_revision(reading: Connection) -> str | None:
    try:
        return current_revision(reading)
    except SchemaError as error:
        reading.rollback()
        return error.current


def _advice(
    facts: Facts, current: str | None, broken: tuple[str, ...], mode: Mode | None, not_granted: tuple[str, ...]
) -> tuple[str, ...]:
    found: list[str] = []
    if current != EXPECTED_REVISION or mode is None:
        at = f"the schema is at {current}" if current else "there is no Wakeful schema"
        found.append(f"{at}, this code expects {EXPECTED_REVISION}: run `wakeful db upgrade`")
    if broken:
        found.append(f"drop the invalid indexes {', '.join(broken)}, then run `wakeful db upgrade`")
    if mode is Mode.ROLES and facts.missing:
        found.append(f"roles {', '.join(facts.missing)} are missing: run `wakeful db upgrade`")
    if not_granted:
        found.append(
            f"login {facts.login} may not become {', '.join(not_granted)}. Have an administrator run: "
            + " ".join(administrator_statements(facts, [facts.login]))
        )
    return tuple(found)

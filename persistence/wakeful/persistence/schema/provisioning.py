"""Roles, grants and the worker's policies: what depends on role names, and so is in no revision.

Doing it again gives the same result, and takes away what an earlier release granted. It all happens in
one transaction: no connection ever sees a role with half of its rights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from wakeful.domain.errors import NotAllowed
from wakeful.persistence.roles import SCOPE_SETTING, WORKER_SCOPE, Mode, Role, role_name
from wakeful.persistence.schema import grants
from wakeful.persistence.schema.facts import SET_OPTION, Direct, Facts, may_become

__all__ = ["Provisioned", "administrator_statements", "provision"]

_FUNCTIONS = """
SELECT p.oid::regprocedure::text, p.proname, p.prorettype = 'trigger'::regtype
  FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'wakeful'::regnamespace ORDER BY 1
"""
_POLICIES = """
SELECT tablename, policyname, cmd, roles::text[], qual FROM pg_catalog.pg_policies
 WHERE schemaname = 'wakeful' AND starts_with(policyname, 'worker_')
"""
_EXISTING = "SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = ANY(%s)"
_RECORD = """
INSERT INTO wakeful.installation (mode, role_prefix) VALUES (%s, %s)
ON CONFLICT (id) DO UPDATE SET mode = EXCLUDED.mode, role_prefix = EXCLUDED.role_prefix
"""


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What was set up; `for_administrator` is empty unless somebody with more rights has to go on."""

    mode: Mode
    prefix: str
    created: tuple[str, ...]
    for_administrator: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Policy:
    """One of the policies through which the worker sees every tenant."""

    table: str
    command: str
    to: str
    condition: str

    @property
    def name(self) -> str:
        return f"worker_{self.command.lower()}"


def provision(connection: Direct, facts: Facts, logins: Sequence[str]) -> Provisioned:
    """Set up roles, or single-role mode where this login may not create them and nobody else did.

    Raises NotAllowed when roles that an earlier upgrade used are gone and cannot be created again.
    """
    everyone = tuple(dict.fromkeys((facts.login, *logins)))
    with connection.transaction():
        created = _create_roles(connection, facts)
        mode = Mode.ROLES if created or not facts.missing else Mode.SINGLE_ROLE
        _refuse_weakening(facts, mode)
        _retire(connection, facts)
        ungranted = _grant_to_logins(connection, facts, everyone) if mode is Mode.ROLES else everyone
        if mode is Mode.ROLES:
            _grant_tables(connection, facts)
        _grant_functions(connection, facts, mode)
        _apply_policies(connection, facts, mode)
        connection.execute(_RECORD, [mode.value, facts.prefix])
    wanted = administrator_statements(facts, ungranted) if ungranted else ()
    return Provisioned(mode, facts.prefix, created, wanted)


def administrator_statements(facts: Facts, logins: Sequence[str]) -> tuple[str, ...]:
    """What somebody who may create roles has to run, once; then `wakeful db upgrade` goes on."""
    option = sql.SQL(" WITH INHERIT FALSE, SET TRUE" if facts.server_version >= SET_OPTION else "")
    create = [sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)) for name in facts.missing]
    grant = [
        sql.SQL("GRANT {} TO {}{}").format(sql.Identifier(role), sql.Identifier(login), option)
        for login in logins
        for role in facts.roles.values()
    ]
    return tuple(f"{statement.as_string(None)};" for statement in [*create, *grant])


def _create_roles(connection: Direct, facts: Facts) -> tuple[str, ...]:
    if not facts.may_create_roles:
        return ()
    for name in facts.missing:
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
    return facts.missing


def _refuse_weakening(facts: Facts, mode: Mode) -> None:
    if mode is Mode.SINGLE_ROLE and facts.recorded and facts.recorded[0] is Mode.ROLES:
        statements = "\n".join(administrator_statements(facts, [facts.login]))
        raise NotAllowed(
            f"this installation works with roles, but {', '.join(facts.missing)} do not exist and login "
            f"{facts.login} may not create roles. Have an administrator run:\n{statements}"
        )


def _retire(connection: Direct, facts: Facts) -> None:
    """Take everything from the roles of another prefix; the roles stay, other databases may use them."""
    if facts.recorded is None or facts.recorded == (Mode.ROLES, facts.prefix):
        return
    names = [role_name(facts.recorded[1], role) for role in Role]
    for (name,) in connection.execute(_EXISTING, [names]).fetchall():
        _revoke_everything(connection, sql.Identifier(name))
        connection.execute(sql.SQL("REVOKE USAGE ON SCHEMA wakeful FROM {}").format(sql.Identifier(name)))


def _grant_to_logins(connection: Direct, facts: Facts, logins: Sequence[str]) -> tuple[str, ...]:
    """Let the logins become the roles, without inheriting them; the logins that this user may not grant to."""
    option = sql.SQL(" WITH INHERIT FALSE, SET TRUE" if facts.server_version >= SET_OPTION else "")
    refused: list[str] = []
    for login in logins:
        for role in facts.roles.values():
            if may_become(connection, facts, login, role):
                continue
            statement = sql.SQL("GRANT {} TO {}{}").format(sql.Identifier(role), sql.Identifier(login), option)
            try:
                with connection.transaction():
                    connection.execute(statement)
            except psycopg.errors.InsufficientPrivilege:
                refused.append(login)
                break
    return tuple(refused)


def _revoke_everything(connection: Direct, role: sql.Composable) -> None:
    connection.execute(sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA wakeful FROM {}").format(role))
    connection.execute(sql.SQL("REVOKE ALL ON ALL ROUTINES IN SCHEMA wakeful FROM {}").format(role))


def _grant_tables(connection: Direct, facts: Facts) -> None:
    for name in facts.roles.values():
        role = sql.Identifier(name)
        _revoke_everything(connection, role)
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA wakeful TO {}").format(role))
    for table, privilege, columns, role_kind in _table_grants():
        named = sql.SQL(" ({})").format(sql.SQL(", ").join(map(sql.Identifier, columns))) if columns else sql.SQL("")
        connection.execute(
            sql.SQL("GRANT {}{} ON wakeful.{} TO {}").format(
                sql.SQL(privilege),
                named,
                sql.Identifier(table),
                sql.Identifier(facts.roles[role_kind]),
            )
        )


def _table_grants() -> Iterator[tuple[str, str, tuple[str, ...] | None, Role]]:
    for role in Role:
        yield from ((table, "SELECT", None, role) for table in grants.INFORMATION)
    yield from ((table, privilege, None, Role.APP) for table, all_of in grants.APP.items() for privilege in all_of)
    yield from ((table, "SELECT", None, Role.READONLY) for table in grants.READONLY)
    for table, commands in grants.WORKER.items():
        yield from ((table, command, columns, Role.WORKER) for command, columns in commands.items())


def _grant_functions(connection: Direct, facts: Facts, mode: Mode) -> None:
    """Functions are open to everybody until somebody takes that away."""
    connection.execute("REVOKE ALL ON ALL ROUTINES IN SCHEMA wakeful FROM PUBLIC")
    if mode is Mode.SINGLE_ROLE:
        return
    for signature, name, is_trigger in connection.execute(_FUNCTIONS).fetchall():
        callers = [] if is_trigger else [Role.APP]
        if name in grants.WORKER_FUNCTIONS:
            callers.append(Role.WORKER)
        for role in callers:
            grantee = sql.Identifier(facts.roles[role])
            connection.execute(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(sql.SQL(signature), grantee))


def _apply_policies(connection: Direct, facts: Facts, mode: Mode) -> None:
    """Only what differs is replaced: changing a policy locks its table against everybody."""
    wanted = {(policy.table, policy.name): policy for policy in _policies(facts, mode)}
    for table, name, command, to, condition in connection.execute(_POLICIES).fetchall():
        policy = wanted.get((table, name))
        if policy and (policy.command, [policy.to], policy.condition) == (command, to, condition):
            del wanted[table, name]
        else:
            connection.execute(
                sql.SQL("DROP POLICY {} ON wakeful.{}").format(sql.Identifier(name), sql.Identifier(table))
            )
    for policy in wanted.values():
        connection.execute(
            sql.SQL("CREATE POLICY {} ON wakeful.{} FOR {} TO {} USING ({})").format(
                sql.Identifier(policy.name),
                sql.Identifier(policy.table),
                sql.SQL(policy.command),
                sql.SQL("PUBLIC") if mode is Mode.SINGLE_ROLE else sql.Identifier(policy.to),
                sql.SQL(policy.condition),
            )
        )


def _policies(facts: Facts, mode: Mode) -> Iterator[_Policy]:
    if mode is Mode.SINGLE_ROLE:
        to = "public"
        # Spelled as PostgreSQL spells it back, so that an unchanged policy is recognized.
        condition = f"(current_setting('{SCOPE_SETTING}'::text, true) = '{WORKER_SCOPE}'::text)"
    else:
        to = facts.roles[Role.WORKER]
        # TO alone is judged by membership, and a login that inherits every role would then see every tenant.
        condition = f"(CURRENT_USER = {sql.Literal(to).as_string(None)}::name)"
    for table, commands in grants.WORKER.items():
        if table in grants.APP:
            yield from (_Policy(table, command, to, condition) for command in commands)

"""How a driver connection is made: role, limits and guarantees by startup options, and proved before its first use.

Poolers drop startup options without a word. So a new connection is asked once whether it works as the role it was
opened for, in READ COMMITTED and with synchronous commits, and is refused otherwise.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from wakeful.domain.errors import ConfigurationError, Unavailable, WakefulError
from wakeful.persistence.answering import AnsweringConnection, SyncAnsweringConnection, answer_limit
from wakeful.persistence.roles import SCOPE_SETTING, WORKER_SCOPE, Role, role_name, role_option

__all__ = ["STATEMENT_TIMEOUT", "ConnectionSettings", "connector", "not_connected", "sync_connection"]

STATEMENT_TIMEOUT = timedelta(seconds=25)
"""Longer than any wait for a session's lock should be; a caller's own deadline is shorter. A server that says nothing
at all is given up within 30 s (`wakeful.persistence.answering`)."""
IDLE_IN_TRANSACTION_TIMEOUT = timedelta(seconds=30)
CONNECT_TIMEOUT_SECONDS = 10
UNANSWERED_MS = 30_000
"""A peer that acknowledges nothing for this long is gone: the connection ends and its write is unknown."""
KEEPALIVE_IDLE_SECONDS = 10
KEEPALIVE_INTERVAL_SECONDS = 5
PREPARE_AFTER = 2

_PLANS = ("-c plan_cache_mode=force_generic_plan", "-c enable_seqscan=off", "-c jit=off")
"""Every statement looks rows up by index, whatever its values: one plan serves them all, made once. Planning took
three quarters of a claim's time. Made while tables are small or not analysed yet, it must not be a scan of them.
Before PostgreSQL 18 a plan that cannot do without what is off counts as so costly that it would be compiled."""
_WORKER_PLANS = ("-c enable_bitmapscan=off", "-c enable_sort=off")
"""The worker takes the first rows of a queue in an index's own order; anything else would fetch all of them first."""

_GUARANTEES = b"""
SELECT current_user::text, current_setting('transaction_isolation'), current_setting('synchronous_commit'),
       current_setting('wakeful.scope', true)
"""
_ROLE_REFUSED = re.compile(r'role "[^"]*" does not exist|permission denied to set role|parameter "role"')
_NO_DATABASE = re.compile(r'database "[^"]*" does not exist')


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Where and as whom to connect. Without `role_prefix` the login itself works: single-role mode.

    `scoped` is that mode's worker, for the length of the connection: for direct addresses only.
    """

    dsn: str
    role: Role
    role_prefix: str | None
    prepared_statements: bool = True
    application_name: str = "wakeful"
    scoped: bool = False
    statement_timeout: timedelta = STATEMENT_TIMEOUT

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "autocommit": True,
            "prepare_threshold": PREPARE_AFTER if self.prepared_statements else None,
            "options": self._options(),
            "application_name": self.application_name,
            "connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "tcp_user_timeout": UNANSWERED_MS,
            # A peer that vanished while it owed an answer acknowledges no probe.
            "keepalives_idle": KEEPALIVE_IDLE_SECONDS,
            "keepalives_interval": KEEPALIVE_INTERVAL_SECONDS,
        }

    def _options(self) -> str:
        """The address's own options first: where both say something, the last one counts."""
        options = [
            str(conninfo_to_dict(self.dsn).get("options") or ""),
            f"-c statement_timeout={_ms(self.statement_timeout)}",
            f"-c idle_in_transaction_session_timeout={_ms(IDLE_IN_TRANSACTION_TIMEOUT)}",
            "-c default_transaction_isolation=read\\ committed",
            "-c timezone=UTC",
            *_PLANS,
            *(_WORKER_PLANS if self.role is Role.WORKER else ()),
        ]
        if self.role_prefix is not None:
            options.append(role_option(self.role_prefix, self.role))
        elif self.scoped:
            options.append(f"-c {SCOPE_SETTING}={WORKER_SCOPE}")
        return " ".join(option for option in options if option)


def connector(settings: ConnectionSettings) -> Callable[[], Awaitable[AnsweringConnection]]:
    """What makes one proved connection. Raises Unavailable, ConfigurationError."""

    async def connect() -> AnsweringConnection:
        try:
            connection = await AnsweringConnection.connect(settings.dsn, **settings.parameters)
        except psycopg.Error as error:
            raise _not_connected(error, settings) from error
        connection.answer_within = answer_limit(settings.statement_timeout)
        try:
            row = await (await connection.execute(_GUARANTEES)).fetchone()
            _verify(row, settings)
        except psycopg.Error as error:
            connection.pgconn.finish()
            raise Unavailable("the database ended a new connection: try again") from error
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection

    return connect


def sync_connection(settings: ConnectionSettings) -> SyncAnsweringConnection:
    """The same for a thread of its own."""
    try:
        connection = SyncAnsweringConnection.connect(settings.dsn, **settings.parameters)
    except psycopg.Error as error:
        raise _not_connected(error, settings) from error
    connection.answer_within = answer_limit(settings.statement_timeout)
    try:
        _verify(connection.execute(_GUARANTEES).fetchone(), settings)
    except psycopg.Error as error:
        connection.close()
        raise Unavailable("the database ended a new connection: try again") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _verify(row: tuple[Any, ...] | None, settings: ConnectionSettings) -> None:
    user, isolation, synchronous, scope = row or (None, None, None, None)
    dropped = (
        "a pooler between here and PostgreSQL drops startup options. Give each role a login and an address of its "
        "own, or connect directly"
    )
    if settings.role_prefix is not None and user != (wanted := role_name(settings.role_prefix, settings.role)):
        raise ConfigurationError(f"this connection works as {user}, not as role {wanted}: {dropped}")
    if settings.role_prefix is None and settings.scoped and scope != WORKER_SCOPE:
        raise ConfigurationError(f"this connection did not keep {SCOPE_SETTING}: {dropped}")
    if isolation != "read committed":
        raise ConfigurationError(f"transactions must be READ COMMITTED here, not {isolation}: check the pooler")
    if synchronous == "off":
        raise ConfigurationError("synchronous_commit is off: committed events could be lost. Set it to on")


def _not_connected(error: psycopg.Error, settings: ConnectionSettings) -> WakefulError:
    if settings.role_prefix is not None and _ROLE_REFUSED.search(str(error)):
        return ConfigurationError(
            f"this login may not work as role {role_name(settings.role_prefix, settings.role)}, or there is no such "
            "role: run `wakeful db upgrade` for this login, or set the role prefix it was run with"
        )
    return not_connected(error)


def not_connected(error: psycopg.Error) -> WakefulError:
    """Why there is no connection. A failure to connect comes without SQLSTATE: the server's words are all there is.

    libpq names host, port and login, never the password. But an address it misread is not repeated: a password with
    an unescaped `@` makes its end a part of the host.
    """
    text = str(error).strip()
    if isinstance(error, psycopg.ProgrammingError):
        return ConfigurationError("the database address cannot be read: use postgresql://user@host:port/database")
    if "resolve host" in text or "translate host name" in text:
        return Unavailable("the database cannot be reached: nobody knows its host's name; check the address")
    if "authentication failed" in text or "no pg_hba.conf entry" in text:
        return ConfigurationError(f"the database refuses this login: check user and password ({text})")
    if _NO_DATABASE.search(text):
        return ConfigurationError(f"the database does not exist: create it, then run `wakeful db upgrade` ({text})")
    return Unavailable(f"the database cannot be reached: {text}")


def _ms(duration: timedelta) -> int:
    return max(1, round(duration.total_seconds() * 1000))

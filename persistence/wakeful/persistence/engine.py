"""An SQLAlchemy engine whose every connection starts as one role and has proved it.

The role and the limits travel as startup options: no statement is spent on them, and none is needed when a
connection is taken from the pool. Poolers drop such options without a word, so a new connection is asked once,
before its first use, and refused when the answer is wrong. No engine event hooks run SQL.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from wakeful.domain.errors import ConfigurationError
from wakeful.persistence.roles import Role, role_option, verify_role_statement, wrong_role

__all__ = ["EngineSettings", "make_engine"]

STATEMENT_TIMEOUT_MS = 30_000
"""Longer than any wait for a session's lock should be; a caller's own deadline is shorter."""
IDLE_IN_TRANSACTION_TIMEOUT_MS = 30_000
PREPARE_AFTER = 5

_GUARANTEES = "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where and as whom to connect. Without `role_prefix` the login itself works: single-role mode."""

    dsn: str
    role: Role
    role_prefix: str | None
    pool_size: int = 5
    prepared_statements: bool = True
    application_name: str = "wakeful"


def make_engine(settings: EngineSettings) -> AsyncEngine:
    """An engine that connects when first used; dispose of it on the loop that used it.

    A connection that is not what was asked for raises ConfigurationError.
    """
    return create_async_engine(
        "postgresql+psycopg://",
        async_creator=_creator(settings),
        pool_size=settings.pool_size,
        max_overflow=0,
        pool_use_lifo=True,
    )


def _creator(settings: EngineSettings) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def connect() -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(
            settings.dsn,
            autocommit=True,
            prepare_threshold=PREPARE_AFTER if settings.prepared_statements else None,
            options=_options(settings),
            application_name=settings.application_name,
        )
        try:
            await _verify(connection, settings)
            await connection.set_autocommit(False)
        except BaseException:
            await connection.close()
            raise
        return connection

    return connect


def _options(settings: EngineSettings) -> str:
    """The address's own options first: where both say something, the last one counts."""
    parts = [
        str(conninfo_to_dict(settings.dsn).get("options") or ""),
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS}",
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS}",
        "-c default_transaction_isolation=read\\ committed",
    ]
    if settings.role_prefix is not None:
        parts.append(role_option(settings.role_prefix, settings.role))
    return " ".join(part for part in parts if part)


async def _verify(connection: psycopg.AsyncConnection[Any], settings: EngineSettings) -> None:
    if settings.role_prefix is not None:
        statement = verify_role_statement(settings.role_prefix, settings.role)
        row = await (await connection.execute(statement.encode())).fetchone()
        if row is None or not row[0]:
            raise wrong_role(settings.role_prefix, settings.role)
    row = await (await connection.execute(_GUARANTEES)).fetchone()
    isolation, synchronous = row or (None, None)
    if isolation != "read committed":
        raise ConfigurationError(f"transactions must be READ COMMITTED here, not {isolation}: check the pooler")
    if synchronous == "off":
        raise ConfigurationError("synchronous_commit is off: committed events could be lost. Set it to on")

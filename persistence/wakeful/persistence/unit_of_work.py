"""The unit of work: one transaction of one tenant, with the repositories over it.

Repositories are built over the live session and never commit; the unit commits on a clean exit and rolls back on
everything else. `Units` is for content, as role `app` with the tenant set; `AcrossTenants` is for finding work,
as role `worker`, which sees every tenant's queue and no content.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from wakeful.domain.transactions import entered, left
from wakeful.persistence.appender import Appender
from wakeful.persistence.repositories.artifacts import ArtifactRepository
from wakeful.persistence.repositories.events import EventRepository
from wakeful.persistence.repositories.invocations import InvocationRepository
from wakeful.persistence.repositories.keys import IdempotencyKeyRepository
from wakeful.persistence.repositories.runs import RunRepository
from wakeful.persistence.repositories.sessions import SessionRepository
from wakeful.persistence.roles import SCOPE_SETTING, TENANT_SETTING, WORKER_SCOPE
from wakeful.persistence.unit_errors import committing, translated

__all__ = ["AcrossTenants", "Unit", "Units"]

_NOTIFY = text("SELECT pg_notify(:channel, '')")
_SET = "SELECT set_config(%s, %s, true)"


class Unit:
    """The repositories of one transaction. Lock order: session, idempotency row, run, invocation."""

    def __init__(self, session: AsyncSession, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id
        self._session = session
        self.sessions = SessionRepository(session, tenant_id)
        self.keys = IdempotencyKeyRepository(session, tenant_id)
        self.runs = RunRepository(session, tenant_id)
        self.invocations = InvocationRepository(session, tenant_id)
        self.events = EventRepository(session, tenant_id)
        self.artifacts = ArtifactRepository(session, tenant_id)
        self.log = Appender(session, tenant_id)

    async def notify(self, channel: str) -> None:
        """Say something on the channel when the unit commits. In a unit of its own: its commit lines up with every
        other that notifies."""
        await self._session.execute(_NOTIFY, {"channel": channel})


class Units:
    """Opens units of work as role `app`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._sessions = async_sessionmaker(engine, expire_on_commit=False, autoflush=False)

    @asynccontextmanager
    async def begin(self, tenant_id: UUID) -> AsyncIterator[Unit]:
        """One transaction of this tenant: committed when the body ends well, rolled back when it raises.

        Raises Unavailable when the database cannot be reached, OutcomeUnknown when it went away during COMMIT.
        """
        async with _transaction(self._sessions, TENANT_SETTING, str(tenant_id)) as session:
            yield Unit(session, tenant_id)


class AcrossTenants:
    """Opens transactions as role `worker`; single-role mode tells them apart by the scope setting."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._sessions = async_sessionmaker(engine, expire_on_commit=False, autoflush=False)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncSession]:
        """One transaction that sees every tenant's queue. Raises as `Units.begin` does."""
        async with _transaction(self._sessions, SCOPE_SETTING, WORKER_SCOPE) as session:
            yield session


@asynccontextmanager
async def _transaction(
    sessions: async_sessionmaker[AsyncSession], setting: str, value: str
) -> AsyncIterator[AsyncSession]:
    # Leaving the session is shielded from cancellation and rolls back whatever was not committed.
    token = entered()
    try:
        async with sessions() as session:
            with translated():
                await _open(session, setting, value)
                yield session
            with committing():
                await session.commit()
    finally:
        left(token)


async def _open(session: AsyncSession, setting: str, value: str) -> None:
    """Begin, with the setting made. A pooled connection that died since its last use is replaced once: nothing
    has been done on it yet."""
    try:
        await _set(session, setting, value)
    except psycopg.OperationalError:
        await session.rollback()
        await _set(session, setting, value)


async def _set(session: AsyncSession, setting: str, value: str) -> None:
    connection = await session.connection()
    driver = cast("psycopg.AsyncConnection[Any]", (await connection.get_raw_connection()).driver_connection)
    try:
        # A pipeline sends BEGIN and the setting together: the transaction opens with its tenant in one round trip.
        async with driver.pipeline():
            await driver.execute(_SET, [setting, value])
    except BaseException:
        # A pipeline cut short, by a cancellation above all, leaves answers for whoever uses the connection next.
        driver.pgconn.finish()
        await connection.invalidate()
        raise

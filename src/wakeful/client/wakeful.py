"""The client: connect, and everything an agent process does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wakeful.bootstrap import build
from wakeful.bootstrap.settings import Settings, load_settings
from wakeful.client.backend import Backend
from wakeful.client.owners import Owner
from wakeful.client.runs import Runs
from wakeful.client.sessions import Sessions
from wakeful.client.submissions import priority_of
from wakeful.domain.states import PriorityClass

__all__ = ["Wakeful", "connect"]


class Wakeful:
    """A connected client. Safe for use by many tasks of one event loop, not by several loops."""

    def __init__(self, backend: Backend, *, tenant: Owner | None = None, principal: Owner | None = None) -> None:
        """Works on an open store; `connect` is how programs get one. `tenant` and `principal` are used where a
        call names none."""
        self._backend = backend
        self.sessions = Sessions(backend, tenant, principal)
        self.runs = Runs(backend, tenant, principal)

    def wake(self, priority: "str | PriorityClass" = PriorityClass.INTERACTIVE) -> None:
        """Tell workers of the class to look now, for example after committing a `submit(connection=…)`. Returns
        at once and never fails: without it they look within a poll interval."""
        self._backend.wakeups.wake(priority_of(priority))


@asynccontextmanager
async def connect(
    database_url: str | None = None,
    *,
    broker_url: str | None = None,
    tenant: Owner | None = None,
    principal: Owner | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Wakeful]:
    """A client for as long as the block runs.

    What is not given is read from the environment (`WAKEFUL_DATABASE_URL`, …). Raises ConfigurationError,
    Unavailable, and SchemaError when the database is not at the revision this code expects; nothing is migrated.
    """
    chosen = settings or load_settings(database_url=database_url, broker_url=broker_url)
    async with build.open_client(chosen) as parts:
        backend = Backend(
            store=parts.store,
            wakeups=parts.wakeups,
            submit_in=parts.submit_in,
            inline_payload_bytes=chosen.inline_payload_bytes,
            key_kept=chosen.submit_key_kept,
        )
        yield Wakeful(backend, tenant=tenant, principal=principal)

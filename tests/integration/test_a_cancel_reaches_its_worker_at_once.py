"""A running run's worker is called when the run is asked to end: it does not wait for the next heartbeat."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from support.database import Database

from wakeful.app import App, ToolCall
from wakeful.bootstrap import build
from wakeful.bootstrap.settings import Settings, given_settings
from wakeful.client import RunHandle, RunStatus, Wakeful, connect
from wakeful.domain.ids import new_id
from wakeful.domain.models import ModelRequest
from wakeful.models.scripted import ScriptedProvider, call, calls, say

pytestmark = pytest.mark.anyio

NEVER = 1000.0
"""Between two heartbeats: nothing of this is waited for."""
WITHIN = 20.0


class Silent:
    """A model that never answers."""

    name = "silent"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def respond(self, request: ModelRequest, *, on_delta: Any = None) -> Any:
        self.asked.set()
        await asyncio.Event().wait()


class Desk:
    """An app whose runs wait for a model, for a tool, or for a tool that must not be repeated."""

    def __init__(self) -> None:
        self.app = App()
        self.model, self.working = Silent(), asyncio.Event()
        self.app.model_provider("silent", self.model)

        async def work(call: ToolCall) -> str:
            """Work for ever."""
            self.working.set()
            await asyncio.Event().wait()
            return "never"

        async def pay(call: ToolCall) -> str:
            """Pay for ever."""
            return await work(call)

        tools = [
            self.app.tool(idempotency="idempotent", timeout_seconds=NEVER)(work),
            self.app.tool(idempotency="non_idempotent", timeout_seconds=NEVER)(pay),
        ]
        scripts = {"work": [calls(call("work")), say("done")], "pay": [calls(call("pay")), say("done")]}
        self.app.model_provider("scripted", ScriptedProvider(scripts))
        self.app.agent("model", model="silent:any")
        for name in scripts:
            self.app.agent(name, model=f"scripted:{name}", tools=tools)


def settings_of(database: Database) -> Settings:
    return given_settings(
        database_url=database.dsn,
        role_prefix=database.role_prefix,
        lease_seconds=3 * NEVER,
        heartbeat_seconds=NEVER,
        poll_interactive_ms=20,
    )


@asynccontextmanager
async def serving(database: Database, desk: Desk) -> AsyncIterator[Wakeful]:
    settings = settings_of(database)
    worker = build.worker(settings, desk.app)
    await worker.start()
    try:
        async with connect(settings=settings, tenant=new_id(), principal=new_id()) as client:
            yield client
    finally:
        await worker.stop()


async def submitted(client: Wakeful, agent: str) -> RunHandle:
    return await (await client.sessions.create(agent=agent)).submit("go")


async def test_a_run_that_waits_for_a_model_is_cancelled_at_once(database: Database) -> None:
    desk = Desk()
    async with serving(database, desk) as client:
        run = await submitted(client, "model")
        await desk.model.asked.wait()
        await run.cancel()
        assert (await run.wait(timeout=WITHIN)).status is RunStatus.CANCELLED


@pytest.mark.parametrize(("tool", "result"), [("work", "CANCELLED"), ("pay", "UNCERTAIN")])
async def test_a_run_that_waits_for_a_tool_is_cancelled_at_once(database: Database, tool: str, result: str) -> None:
    desk = Desk()
    async with serving(database, desk) as client:
        run = await submitted(client, tool)
        await desk.working.wait()
        await run.cancel()
        assert (await run.wait(timeout=WITHIN)).status is RunStatus.CANCELLED
        assert [each.status.value for each in await run.all_calls()] == [result]


async def test_a_worker_whose_connection_was_cut_can_be_called_again(database: Database) -> None:
    desk = Desk()
    async with serving(database, desk) as client:
        run = await submitted(client, "model")
        await desk.model.asked.wait()
        await cut_the_heartbeat(database)
        await run.cancel()
        assert (await run.wait(timeout=WITHIN)).status is RunStatus.CANCELLED


async def cut_the_heartbeat(database: Database) -> None:
    """Return when another connection listens in its place."""
    listeners = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s"
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as admin:

        async def pids() -> set[int]:
            rows = await (await admin.execute(listeners, ("%heartbeat",))).fetchall()
            return {row[0] for row in rows}

        async with asyncio.timeout(WITHIN):
            while not (before := await pids()):  # noqa: ASYNC110 - another thread's doing has no signal
                await asyncio.sleep(0.01)
        for pid in before:
            await admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
        async with asyncio.timeout(WITHIN):
            while not (await pids()) - before:  # noqa: ASYNC110 - another process's doing has no signal
                await asyncio.sleep(0.01)

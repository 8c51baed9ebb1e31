"""PostgreSQL itself says that no connection has a transaction open while a model or a tool is waited for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from support.database import Database
from support.desk import DeskWorker
from support.hot_paths import store_on

from wakeful.app import App, ToolCall
from wakeful.domain.ids import new_id
from wakeful.domain.models import ModelRequest, ModelResponse
from wakeful.domain.runs import Message, Submission
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import RunStatus
from wakeful.models.scripted import ScriptedProvider, call, calls, say

pytestmark = [pytest.mark.anyio, pytest.mark.gate("txn_hygiene"), pytest.mark.spec("QUE-11", "LOG-1")]

OPEN = """
SELECT state, left(query, 60) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


@dataclass
class Onlooker:
    """Looks at every backend of the database from outside."""

    dsn: str
    seen: list[tuple[str, list[tuple[Any, ...]]]] = field(default_factory=list)

    def look(self, where: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            self.seen.append((where, connection.execute(OPEN).fetchall()))


def app_of(look: Callable[[str], None]) -> App:
    app = App()

    @app.tool(idempotency="non_idempotent")
    async def pay(call: ToolCall, cents: int) -> str:
        """Pay."""
        await asyncio.to_thread(look, "tool")
        return "paid"

    def script(request: ModelRequest) -> ModelResponse:
        look("model")
        return say("Done.") if request.turn_index else calls(call("pay", cents=1), call("pay", cents=2))

    app.model_provider("scripted", ScriptedProvider({"onlooker": script}))
    app.agent("onlooker", model="scripted:onlooker", tools=[pay])
    return app


async def test_every_connection_is_idle_and_in_no_transaction(database: Database) -> None:
    onlooker = Onlooker(database.dsn)
    async with store_on(database, event_hints=False) as store:
        scope, session = Scope(new_id(), new_id()), new_id()
        await store.sessions.create(NewSession(scope, "onlooker", session_id=session))
        submitted = await store.queue.submit(Submission(scope, session, "onlooker", 1, messages=(Message("Go"),)))
        await DeskWorker(store, app_of(onlooker.look)).work()
        assert (await store.runs.get(scope, submitted.run.run_id)).status is RunStatus.COMPLETED
    assert [where for where, _ in onlooker.seen] == ["model", "tool", "tool", "model"]
    for where, backends in onlooker.seen:
        assert backends, "there was nothing to look at"
        if where == "model":
            assert {state for state, _ in backends} == {"idle"}, backends
        else:  # the other call of the batch may be at its own statement
            assert "idle in transaction" not in {state for state, _ in backends}, backends

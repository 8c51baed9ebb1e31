"""200 turns of 1 KiB each: bytes of every table's rows beside the payload of the events."""

import pytest
from support.hot_paths import Admin
from support.runs import office

from wakeful.app import App
from wakeful.domain.runs import Budget
from wakeful.domain.states import RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.persistence.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.spec("CKP-2", "CKP-3")]

KIB = "".join(chr(97 + n * n % 26) for n in range(1024))
TURNS = 200
TABLES = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'wakeful' ORDER BY tablename"


async def test_all_rows_together_take_two_and_a_half_times_the_payload_at_most(
    store: PostgresStore, admin: Admin
) -> None:
    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(n: int) -> str:
            """Look."""
            return KIB

        app.agent("agent", model="scripted:agent", tools=[look])

    place = office(register, agent=[*(calls(call("look", n=n)) for n in range(TURNS - 1)), say(KIB)])
    place.store = store  # type: ignore[assignment]
    ref = await place.submit("agent", "Go", budget=Budget(max_steps=TURNS, max_tool_calls=TURNS))
    [claim] = await place.claim()
    await place.executor().execute(place.holding(claim))
    assert (await place.run(ref)).status is RunStatus.COMPLETED
    assert len(await place.turns(ref)) == TURNS

    tables = [name for (name,) in await admin.fetch(TABLES)]
    rows = {}
    for table in tables:
        [(size,)] = await admin.fetch(f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM wakeful.{table} AS t")
        rows[table] = int(size)
    [(payload,)] = await admin.fetch("SELECT sum(octet_length(payload::text)) FROM wakeful.events")
    assert rows["events"] > 0 < rows["tool_invocations"]
    assert sum(rows.values()) <= 2.5 * int(payload), rows

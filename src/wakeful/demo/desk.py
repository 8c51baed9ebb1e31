"""The support desk: tools of every idempotency class, and the agent that has them.

This is what a team writes. The ledger stands for the services that a real desk would call.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from wakeful.app import App, ToolCall, ToolFailed
from wakeful.demo import orders
from wakeful.demo.stories import script
from wakeful.domain.errors import ConfigurationError
from wakeful.faults.ledger import LedgerClient
from wakeful.faults.owners import OwnerNotes, WitnessedProvider
from wakeful.models.scripted import ScriptedProvider

__all__ = ["AGENT", "LEDGER_VARIABLE", "desk_app", "effect", "owner_notes"]

AGENT = "support"
LEDGER_VARIABLE = "SUPPORT_DESK_LEDGER"
"""The environment variable that names the ledger's socket to the demonstration's workers."""
MODEL_LATENCY = timedelta(milliseconds=60)
SERVICE_SECONDS = 0.3
"""From a service's effect to its answer: where a crash is worst."""
SLOW_POST_SECONDS = 20.0
"""The slow post answers so late that the second scene has time to kill its caller."""


def effect(session: object, what: str) -> str:
    """How the ledger names an effect; the session tells the plays apart."""
    return f"{session} {what}"


def owner_notes(ledger: Path) -> OwnerNotes:
    """Where workers note whose leases they execute: in the ledger's private folder, which goes with it."""
    return OwnerNotes(ledger.parent / "owners")


def desk_app(ledger: LedgerClient, notes: OwnerNotes) -> App:
    """The app over a ledger."""
    app = App()

    @app.tool(idempotency="read_only")
    async def find_order(order: str) -> dict[str, Any]:
        """Look an order up by its number."""
        await asyncio.sleep(SERVICE_SECONDS)
        found = orders.find(order)
        if found is None:
            raise ToolFailed(f"there is no order {order}", code="unknown_order")
        return {"order": order, "article": found.article, "cents": found.cents, "state": found.state}

    @app.tool(idempotency="idempotent")
    async def flag_order(call: ToolCall, order: str, flag: str) -> dict[str, str]:
        """Put a flag on an order. Putting it there again changes nothing."""
        # The flag is its own key: that is what makes the tool idempotent, whoever calls it.
        await ledger.record(
            f"flag {call.run.session_id} {order} {flag}", effect(call.run.session_id, f"flag {order} {flag}")
        )
        await asyncio.sleep(SERVICE_SECONDS)
        return {"order": order, "flag": flag}

    @app.tool(idempotency="conditionally_idempotent")
    async def refund(call: ToolCall, order: str, cents: int) -> dict[str, Any]:
        """Give a customer their money back."""
        await ledger.record(call.key, effect(call.run.session_id, f"refund {order} {cents}"))
        await asyncio.sleep(SERVICE_SECONDS)
        return {"order": order, "refunded_cents": cents}

    @app.tool(idempotency="conditionally_idempotent", approval=True)
    async def refund_large(call: ToolCall, order: str, cents: int) -> dict[str, Any]:
        """Give back an amount that a person has to approve."""
        await ledger.record(call.key, effect(call.run.session_id, f"refund_large {order} {cents}"))
        await asyncio.sleep(SERVICE_SECONDS)
        return {"order": order, "refunded_cents": cents}

    @app.tool(idempotency="non_idempotent", timeout_seconds=60)
    async def send_letter(call: ToolCall, order: str, post: str = "fast") -> dict[str, str]:
        """Send a letter. The post takes no keys: a second request is a second letter."""
        await ledger.record(call.key, effect(call.run.session_id, f"letter {order}"), once=False)
        await asyncio.sleep(SLOW_POST_SECONDS if post == "slow" else SERVICE_SECONDS)
        return {"order": order, "letter": "sent"}

    provider = ScriptedProvider({"desk": script}, latency=MODEL_LATENCY)
    app.model_provider("scripted", WitnessedProvider(provider, notes))
    app.agent(
        AGENT,
        model="scripted:desk",
        instructions="You are the support desk. Ask before you guess.",
        tools=[find_order, flag_order, refund, refund_large, send_letter],
        asks=True,
    )
    return app


def __getattr__(name: str) -> App:
    # Built when a worker asks for it: importing this module needs no ledger.
    if name != "app":
        raise AttributeError(name)
    socket = os.environ.get(LEDGER_VARIABLE)
    if not socket:
        raise ConfigurationError("this app is started by `wakeful demo`, which gives it an effect ledger")
    return desk_app(LedgerClient(Path(socket)), owner_notes(Path(socket)))

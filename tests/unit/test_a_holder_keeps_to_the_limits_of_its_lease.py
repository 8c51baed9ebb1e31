"""What a holder does not do: believe a slow answer, start late, write on, repeat, or leave an append half made."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from support.pools import LEASE, Executions, make_pool, memory, running, submit, until
from support.runs import CrashingLog, Office, office

from wakeful.app import App, RetryPolicy, ToolCall
from wakeful.domain.appends import Append, Appended
from wakeful.domain.drivers import Turn, View
from wakeful.domain.errors import Unavailable
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import UserMessageReceived
from wakeful.domain.history import MessageEntry
from wakeful.domain.ports.leases import Heartbeat, LeaseKeeper
from wakeful.domain.runs import Lease
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio

SLOW_SECONDS = 0.3
AGENT = "payer"


def place(effects: list[int], retry: RetryPolicy = RetryPolicy(), *, fails: bool = False) -> Office:  # noqa: B008
    def register(app: App) -> None:
        @app.tool(idempotency="non_idempotent", retry=retry)
        async def pay(call: ToolCall) -> str:
            """Pay."""
            effects.append(call.attempt)
            if fails:
                raise ConnectionResetError("the connection broke")
            return "paid"

        app.agent(AGENT, model=f"scripted:{AGENT}", tools=[pay])

    return office(register, payer=[calls(call("pay")), say("Done.")])


class SlowKeeper:
    """A keeper whose answers take their time."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper

    def heartbeat(self, owner: UUID, leases: Sequence[Lease], *, lease: timedelta) -> Heartbeat:
        answer = self._keeper.heartbeat(owner, leases, lease=lease)
        time.sleep(SLOW_SECONDS)  # in the heartbeat's own thread
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keeper, name)


@pytest.mark.spec("QUE-4")
async def test_a_slow_heartbeat_shortens_the_trust_and_never_stretches_it() -> None:
    store = memory()
    executions = Executions(store, stay=True)
    run = await submit(store)
    pool = make_pool(store, executions, heartbeat=timedelta(milliseconds=20))
    pool._keeper = lambda: SlowKeeper(store.lease_keeper())
    async with running(pool):
        await until(lambda: executions.started)
        holding = executions.of(run)
        first = holding.trusted_until
        await until(lambda: holding.trusted_until > first)
        assert holding.trusted_until < time.monotonic() + LEASE.total_seconds() - SLOW_SECONDS / 2


@pytest.mark.spec("QUE-5")
async def test_no_effect_starts_past_the_time_the_lease_may_be_trusted() -> None:
    effects: list[int] = []
    office_ = place(effects)
    ref = await office_.submit(AGENT, "Go")
    (claim,) = await office_.claim()
    holding = office_.holding(claim)
    holding.trusted_until = time.monotonic() - 1
    executing = asyncio.ensure_future(office_.executor().execute(holding))
    async with asyncio.timeout(5):
        while not await office_.turns(ref):  # noqa: ASYNC110 - the turn is committed whatever the trust
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # nothing happens, which nothing announces
    assert effects == []
    holding.trusted_until = time.monotonic() + 30
    assert await executing is Ending.COMPLETED
    assert effects == [1]


@pytest.mark.spec("QUE-4")
async def test_a_holder_that_is_told_it_lost_stops_trying_to_write() -> None:
    office_ = place([])
    await office_.submit(AGENT, "Go")
    (claim,) = await office_.claim()
    holding = office_.holding(claim)

    class Away(CrashingLog):
        async def append(self, append: Append) -> Appended:
            holding.lost = True
            raise Unavailable("the database is away")

    async with asyncio.timeout(5):
        assert await office_.executor(Away(office_.store.log)).execute(holding) is Ending.FENCED


@pytest.mark.spec("REC-7")
async def test_no_declared_retry_repeats_a_call_that_must_not_be_repeated() -> None:
    effects: list[int] = []
    office_ = place(effects, RetryPolicy(attempts=5), fails=True)
    ref = await office_.submit(AGENT, "Go")
    await office_.work()
    assert effects == [1]
    assert [each.status for each in await office_.calls(ref)] == [InvocationStatus.UNCERTAIN]


@pytest.mark.spec("REC-1")
async def test_what_others_wrote_meanwhile_is_known_before_the_model_is_asked_again() -> None:
    heard: list[int] = []

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(call: ToolCall) -> str:
            """Look, while somebody says something."""
            said = NewEvent(UserMessageReceived(content="One more thing."), Actor("user"), run_id=call.run.run_id)
            await office_.store.log.append(Append(call.run.session, (said,)))
            return "seen"

        app.agent("looker", driver=Listening(heard), tools=[look])

    office_ = office(register)
    ref = await office_.submit("looker", "Go")
    await office_.work()
    assert (await office_.run(ref)).status is RunStatus.COMPLETED
    assert heard == [1, 2]


class Listening:
    """Counts the messages that it is shown."""

    def __init__(self, heard: list[int]) -> None:
        self._heard = heard

    async def next_turn(self, view: View) -> Turn:
        self._heard.append(sum(isinstance(entry, MessageEntry) for entry in view.conversation.entries))
        return Turn(calls=(call("look"),)) if view.step == 1 else Turn(content="Done.")

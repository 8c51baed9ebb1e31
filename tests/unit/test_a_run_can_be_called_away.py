"""Cancel, drain and a lost lease, at the model and at the tool: nothing is repeated, nothing is left half said."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.runs import Office, office

from wakeful.app import App, ToolCall
from wakeful.domain.appends import Append, Appended
from wakeful.domain.errors import Unavailable
from wakeful.domain.events import Event
from wakeful.domain.models import ModelRequest, ModelResponse, OnDelta
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio


class Place:
    """An office with a model and tools that stop where the test can see it."""

    def __init__(self) -> None:
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.effects: list[str] = []
        scripts = {name: [calls(call(name)), say("Done.")] for name in ("safe", "unsafe")}
        self.office: Office = office(self.register, **scripts)

    def register(self, app: App) -> None:
        @app.tool(idempotency="idempotent")
        async def safe(call: ToolCall) -> str:
            """Stop, then return."""
            return await self.stop("safe")

        @app.tool(idempotency="non_idempotent")
        async def unsafe(call: ToolCall) -> str:
            """Stop, then return."""
            return await self.stop("unsafe")

        place = self

        class Slow:
            name = "slow"

            async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
                await place.stop("model")
                return say("Late.")

        app.model_provider("slow", Slow())
        app.agent("model", model="slow:any")
        app.agent("safe", model="scripted:safe", tools=[safe])
        app.agent("unsafe", model="scripted:unsafe", tools=[unsafe])

    async def stop(self, what: str) -> str:
        self.reached.set()
        await self.go_on.wait()
        self.effects.append(what)
        return what


def drain(holding: Holding) -> None:
    holding.draining = True
    holding.changed.set()


def cancel(holding: Holding) -> None:
    holding.cancel_requested = True
    holding.changed.set()


def lose(holding: Holding) -> None:
    holding.lost = True
    holding.changed.set()


async def interrupt(place: Place, agent: str, how: Callable[[Holding], None]) -> tuple[Awaitable[Ending], Holding]:
    await place.office.submit(agent, "Go")
    [claim] = await place.office.claim()
    holding = place.office.holding(claim)
    execution = asyncio.ensure_future(place.office.executor().execute(holding))
    await place.reached.wait()
    how(holding)
    return execution, holding


@pytest.mark.parametrize("agent", ["model", "safe"])
async def test_a_drain_hands_back_what_can_be_done_again(agent: str) -> None:
    place = Place()
    execution, holding = await interrupt(place, agent, drain)
    assert await execution is Ending.HANDED_BACK
    ref = holding.lease.run
    run = await place.office.run(ref)
    assert (run.status, run.lease_expirations, run.lease_owner) == (RunStatus.QUEUED, 0, None)
    place.go_on.set()
    assert await place.office.work() == [Ending.COMPLETED]
    assert place.effects == [agent]


async def test_a_drain_waits_for_a_call_that_cannot_be_repeated() -> None:
    place = Place()
    execution, holding = await interrupt(place, "unsafe", drain)
    done, _ = await asyncio.wait({asyncio.ensure_future(execution)}, timeout=0.05)
    assert not done
    place.go_on.set()
    assert await execution is Ending.HANDED_BACK
    [only] = await place.office.calls(holding.lease.run)
    assert only.status is InvocationStatus.COMPLETED
    assert await place.office.work() == [Ending.COMPLETED]
    assert place.effects == ["unsafe"]


class Away:
    """A log of a database that cannot be reached, until it can."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.failures = 0

    async def append(self, append: Append) -> Appended:
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        return await self._log.append(append)

    async def read(self, *given: Any, **options: Any) -> list[Event]:
        return await self._log.read(*given, **options)


async def test_a_drain_outlasts_a_short_outage_and_hands_back_uncounted() -> None:
    place = Place()
    await place.office.submit("model", "Go")
    [claim] = await place.office.claim()
    holding = place.office.holding(claim)
    log = Away(place.office.store.log)
    execution = asyncio.ensure_future(place.office.executor(log).execute(holding))
    await place.reached.wait()
    log.failures = 3
    drain(holding)
    assert await execution is Ending.HANDED_BACK
    assert log.failures == 0
    run = await place.office.run(holding.lease.run)
    assert (run.status, run.lease_expirations) == (RunStatus.QUEUED, 0)


async def test_memory_used_up_in_the_process_fails_no_run() -> None:
    place = Place()
    place.go_on.set()
    ref = await place.office.submit("safe", "Go")
    [claim] = await place.office.claim()

    class Full(Away):
        async def append(self, append: Append) -> Appended:
            if any(event.type == "tool.call.started" for event in append.events):
                raise MemoryError
            return await super().append(append)

    with pytest.raises(MemoryError):
        await place.office.executor(Full(place.office.store.log)).execute(place.office.holding(claim))
    assert (await place.office.run(ref)).status is RunStatus.RUNNING
    await place.office.expire_leases()
    assert Ending.COMPLETED in await place.office.work()


@pytest.mark.parametrize(
    ("agent", "expected"),
    [("model", None), ("safe", InvocationStatus.CANCELLED), ("unsafe", InvocationStatus.UNCERTAIN)],
)
async def test_a_cancelled_run_ends_at_once_with_one_result_per_call(
    agent: str, expected: InvocationStatus | None
) -> None:
    place = Place()
    execution, holding = await interrupt(place, agent, cancel)
    assert await execution is Ending.CANCELLED
    ref = holding.lease.run
    assert (await place.office.run(ref)).status is RunStatus.CANCELLED
    assert [c.status for c in await place.office.calls(ref)] == ([expected] if expected else [])
    for turn in await place.office.turns(ref):
        assert turn.unanswered == []


@pytest.mark.spec("QUE-4", "LOG-3")
@pytest.mark.parametrize("agent", ["model", "safe", "unsafe"])
async def test_a_lost_lease_stops_the_run_and_leaves_one_word(agent: str) -> None:
    place = Place()
    execution, holding = await interrupt(place, agent, lose)
    ref = holding.lease.run
    before = await place.office.types(ref)
    assert await execution is Ending.FENCED
    assert await place.office.types(ref) == [*before, "run.fenced"]
    again = place.office.holding(holding.claim)
    again.lost = True
    assert await place.office.executor().execute(again) is Ending.FENCED
    assert (await place.office.types(ref)).count("run.fenced") == 1


@pytest.mark.spec("QUE-5")
@pytest.mark.gate("exactly_once")
async def test_a_worker_that_wakes_up_after_its_lease_writes_nothing() -> None:
    """A stalled worker's run is taken over; when the stalled one goes on, its result is refused."""
    place = Place()
    execution, holding = await interrupt(place, "unsafe", lambda h: None)
    ref = holding.lease.run
    await place.office.expire_leases()
    assert await place.office.work() == [Ending.COMPLETED]
    before = await place.office.types(ref)
    place.go_on.set()
    assert await execution is Ending.FENCED
    assert await place.office.types(ref) == [*before, "run.fenced"]
    [only] = await place.office.calls(ref)
    assert only.status is InvocationStatus.UNCERTAIN


async def test_a_suspect_goes_back_to_the_ordinary_pool_at_its_first_committed_step() -> None:
    place = Place()
    place.go_on.set()
    ref = await place.office.submit("safe", "Go")
    await place.office.claim()
    await place.office.expire_leases()
    [suspect] = await place.office.claim()
    assert suspect.suspect
    assert await place.office.executor().execute(place.office.holding(suspect)) is Ending.HANDED_BACK
    run = await place.office.run(ref)
    assert (run.status, run.suspect, run.step, run.lease_expirations) == (RunStatus.QUEUED, False, 1, 1)
    assert await place.office.work() == [Ending.COMPLETED]
    assert place.effects == ["safe"]

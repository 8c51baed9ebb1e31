"""An answer, an approval, a denial, a child's result: whenever it comes around a crash, it is used exactly once."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.runs import LEASE, Crash, Office, office

from wakeful.app import App, ToolCall
from wakeful.domain.appends import Append, Appended
from wakeful.domain.errors import AlreadyAnswered
from wakeful.domain.events import Event
from wakeful.domain.events.turns import CallEnded
from wakeful.domain.invocations import Invocation
from wakeful.domain.scopes import RunRef, SessionRef
from wakeful.domain.states import InvocationStatus, PriorityClass, RunStatus
from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.models.scripted import call, calls, say

pytestmark = [pytest.mark.anyio, pytest.mark.gate("crash_recovery"), pytest.mark.spec("REC-5")]

SCRIPTS = {
    "question": [calls(call(ASK_USER, question="Which?"), call("look")), say("Done.")],
    "approval": [calls(call("refund"), call("look")), say("Done.")],
    "denial": [calls(call("refund"), call("look")), say("Done.")],
    "child": [calls(call(DELEGATE, agent="helper", input="Look it up"), call("look")), say("Done.")],
    "helper": [say("It is red.")],
}
EXPECTED = {
    "question": (InvocationStatus.COMPLETED, "red"),
    "approval": (InvocationStatus.COMPLETED, "refunded"),
    "denial": (InvocationStatus.DENIED, None),
    "child": (InvocationStatus.COMPLETED, "It is red."),
}
SHAPES = list(EXPECTED)


class At:
    """A log that does something, once, before or after an append that holds an event of this type."""

    def __init__(
        self, place: Office, run: RunRef, event: str, do: Callable[[], Awaitable[None]], *, after: bool
    ) -> None:
        self._place, self._run, self._event, self._do, self._after = place, run, event, do, after
        self.done = False

    async def append(self, append: Append) -> Appended:
        mine = append.lease is not None and append.lease.run == self._run
        here = mine and not self.done and any(event.type == self._event for event in append.events)
        if here and not self._after:
            self.done = True
            await self._do()
        appended = await self._place.store.log.append(append)
        if here and self._after:
            self.done = True
            await self._do()
        return appended

    async def read(self, session: SessionRef, **options: Any) -> list[Event]:
        return await self._place.store.log.read(session, **options)


class Case:
    """A run of one shape, and what arrives for it."""

    def __init__(self, shape: str) -> None:
        self.shape = shape
        self.effects: Counter[str] = Counter()
        self.place = office(self._register, **SCRIPTS)

    def _register(self, app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(call: ToolCall) -> str:
            """Look."""
            return "seen"

        @app.tool(idempotency="non_idempotent", approval=True)
        async def refund(call: ToolCall) -> str:
            """Refund."""
            self.effects[call.key] += 1
            return "refunded"

        for name in SCRIPTS:
            app.agent(
                name,
                model=f"scripted:{name}",
                tools=[look, refund],
                asks=True,
                delegates=["helper"] if name == "child" else [],
            )

    async def submit(self) -> RunRef:
        self.run = await self.place.submit(self.shape, "Go")
        return self.run

    async def open_call(self) -> Invocation:
        [first, _] = await self.place.calls(self.run)
        return first

    async def arrive(self) -> None:
        """What the run waits for comes, and a second of its kind is refused or changes nothing."""
        control, call_id = self.place.store.control, (await self.open_call()).id
        scope, run_id = self.place.scope, self.run.run_id
        match self.shape:
            case "question":
                await control.answer(scope, run_id, call_id, "red")
                with pytest.raises(AlreadyAnswered):
                    await control.answer(scope, run_id, call_id, "blue")
            case "approval":
                await control.approve(scope, run_id, call_id)
            case "denial":
                await control.deny(scope, run_id, call_id)
            case "child":
                await self._child_ends()
                await self.place.sweep()
                await self.place.sweep()

    async def _child_ends(self) -> None:
        """The child is executed, and nothing else."""
        for claim in await self.place.store.queue.claim(
            self.run.run_id, capacity={PriorityClass.INTERACTIVE: 9}, agents=["helper"], lease=LEASE, suspects=0
        ):
            await self.place.executor().execute(self.place.holding(claim))

    async def finish(self) -> None:
        for _ in range(10):
            if (await self.place.run(self.run)).status.terminal:
                return
            await self.place.work()
            await self.place.expire_leases()
        raise AssertionError("the run never ended")

    async def check(self) -> None:
        run = await self.place.run(self.run)
        assert (run.status, run.lease_expirations) == (RunStatus.COMPLETED, 1), run.failure
        status, data = EXPECTED[self.shape]
        stored = await self.open_call()
        assert stored.status is status
        results = [
            event.payload.result
            for event in await self.place.events(self.run)
            if isinstance(event.payload, CallEnded) and event.payload.invocation_id == stored.id
        ]
        assert [(result.status, result.data) for result in results] == [(status, data)]
        assert sum(self.effects.values()) == (1 if self.shape == "approval" else 0)
        turns = await self.place.turns(self.run)
        assert [len(turn.calls) for turn in turns] == [2, 0]
        assert turns[0].unanswered == []


async def nothing() -> None:
    return


async def crashed(case: Case, *, first: Callable[[], Awaitable[None]] = nothing) -> None:
    """Its worker dies when it is about to say that the run waits; `first` happens just before that."""

    async def then_crash() -> None:
        await first()
        raise Crash

    [claim] = [each for each in await case.place.claim() if each.lease.run == case.run]
    log = At(case.place, case.run, "run.waiting", then_crash, after=False)
    with pytest.raises(Crash):
        await case.place.executor(log).execute(case.place.holding(claim))


@pytest.mark.parametrize("shape", SHAPES)
async def test_before_the_crash(shape: str) -> None:
    case = Case(shape)
    await case.submit()
    await crashed(case, first=case.arrive)
    await case.place.expire_leases()
    await case.finish()
    await case.check()


@pytest.mark.parametrize("shape", SHAPES)
async def test_between_the_crash_and_its_discovery(shape: str) -> None:
    case = Case(shape)
    await case.submit()
    await crashed(case)
    await case.arrive()
    assert (await case.place.run(case.run)).status is RunStatus.RUNNING
    await case.place.expire_leases()
    await case.finish()
    await case.check()


@pytest.mark.parametrize("shape", SHAPES)
async def test_while_the_run_is_queued_again(shape: str) -> None:
    case = Case(shape)
    await case.submit()
    await crashed(case)
    await case.place.expire_leases()
    await case.arrive()
    assert (await case.place.run(case.run)).status is RunStatus.QUEUED
    await case.finish()
    await case.check()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("event", ["run.resumed", "run.waiting"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_while_the_run_is_taken_up_again(shape: str, event: str, after: bool) -> None:
    case = Case(shape)
    await case.submit()
    await crashed(case)
    await case.place.expire_leases()
    [claim] = [each for each in await case.place.claim() if each.lease.run == case.run]
    log = At(case.place, case.run, event, case.arrive, after=after)
    await case.place.executor(log).execute(case.place.holding(claim))
    assert log.done
    await case.finish()
    await case.check()


@pytest.mark.parametrize("shape", SHAPES)
async def test_when_the_run_waits_again_after_the_crash(shape: str) -> None:
    case = Case(shape)
    await case.submit()
    await crashed(case)
    await case.place.expire_leases()
    [claim] = [each for each in await case.place.claim() if each.lease.run == case.run]
    await case.place.executor().execute(case.place.holding(claim))
    assert (await case.place.run(case.run)).status in (
        RunStatus.WAITING_INPUT,
        RunStatus.WAITING_APPROVAL,
        RunStatus.WAITING_CHILD,
    )
    await case.arrive()
    await case.finish()
    await case.check()

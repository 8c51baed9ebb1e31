"""A tool that declares `reconcile` has its service asked what happened; the answer settles the call once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.runs import Crash, CrashingLog, Office, office

from wakeful.app import App, DidNotHappen, Happened, RetryPolicy, Tool, ToolCall, ToolFailed
from wakeful.domain.content import CallResult
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.events.turns import CallEnded
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio

SCRIPT = [calls(call("pay", cents=7)), say("Done.")]
QUICK = RetryPolicy(attempts=2, first_delay=timedelta(milliseconds=1), max_delay=timedelta(milliseconds=2))
Before = Callable[[], Any]


class Bank:
    """A service that keeps what was paid, a tool that pays, and a word of the service's own about a key."""

    def __init__(self, *, idempotency: str = "non_idempotent", timeout_seconds: float = 30.0) -> None:
        self.paid: Counter[str] = Counter()
        self.asked: list[str] = []
        self.before_paying: Before = lambda: None
        self.after_paying: Before = lambda: None
        self.says: Callable[[str], Any] = self.knows

        def register(app: App) -> None:
            @app.tool(idempotency=idempotency, reconcile=self.reconcile, retry=QUICK, timeout_seconds=timeout_seconds)
            async def pay(call: ToolCall, cents: int) -> dict[str, Any]:
                """Pay."""
                await _done(self.before_paying())
                self.paid[call.key] += 1
                await _done(self.after_paying())
                return {"cents": cents}

            app.agent("clerk", model="scripted:clerk", tools=[pay])

        self.office: Office = office(register, clerk=SCRIPT)

    async def reconcile(self, key: str) -> Any:
        self.asked.append(key)
        return await _done(self.says(key))

    def knows(self, key: str) -> Any:
        return Happened({"cents": 7}) if self.paid[key] else DidNotHappen("nothing was booked")

    async def submit(self) -> RunRef:
        return await self.office.submit("clerk", "Pay")

    async def result(self, run: RunRef) -> CallResult:
        """The call's one result."""
        [only] = [e.payload for e in await self.office.events(run) if isinstance(e.payload, CallEnded)]
        [stored] = await self.office.calls(run)
        assert stored.status is only.result.status
        return only.result

    async def to_the_end(self, run: RunRef) -> None:
        for _ in range(10):
            await self.office.work()
            if (await self.office.run(run)).status.terminal:
                return
            await self.office.expire_leases()
        raise AssertionError("the run never ended")


async def _done(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) else value


def crash() -> None:
    raise Crash


def trouble() -> None:
    raise OSError("the connection broke")


async def crashed(bank: Bank, *, paid: bool) -> RunRef:
    """The worker dies in the tool, after or before the service has done it."""
    run = await bank.submit()
    log = CrashingLog(bank.office.store.log)

    def die() -> None:
        log.crashed = True  # nothing of this process is written any more
        raise OSError

    if paid:
        bank.after_paying = die
    else:
        bank.before_paying = die
    with pytest.raises(Crash):
        await bank.office.work(log)
    bank.before_paying = bank.after_paying = lambda: None
    bank.asked.clear()
    await bank.office.expire_leases()
    return run


@pytest.mark.gate("exactly_once")
async def test_after_a_crash_what_did_happen_is_the_calls_result() -> None:
    bank = Bank()
    run = await crashed(bank, paid=True)
    await bank.to_the_end(run)
    result = await bank.result(run)
    assert (result.status, result.code, result.data) == (InvocationStatus.COMPLETED, "reconciled", {"cents": 7})
    [stored] = await bank.office.calls(run)
    assert bank.asked == [stored.idempotency_key]
    assert bank.paid == {stored.idempotency_key: 1}
    assert (await bank.office.run(run)).status is RunStatus.COMPLETED


@pytest.mark.gate("exactly_once")
async def test_after_a_crash_what_did_not_happen_is_a_failure_and_is_not_tried_again() -> None:
    bank = Bank()
    run = await crashed(bank, paid=False)
    await bank.to_the_end(run)
    result = await bank.result(run)
    assert (result.status, result.code) == (InvocationStatus.FAILED, "did_not_happen")
    assert "nothing was booked" in result.message
    assert not bank.paid


@pytest.mark.parametrize("attempt", ["nothing", "an error", "another thing", "an exit", "silence"])
async def test_a_service_that_does_not_know_leaves_the_call_uncertain(attempt: str) -> None:
    bank = Bank(timeout_seconds=0.05)
    run = await crashed(bank, paid=True)

    def leave() -> None:
        raise SystemExit

    bank.says = {
        "nothing": lambda _: None,
        "an error": lambda _: trouble(),
        "another thing": lambda _: "paid",
        "an exit": lambda _: leave(),
        "silence": lambda _: asyncio.sleep(60),
    }[attempt]
    await bank.to_the_end(run)
    result = await bank.result(run)
    assert (result.status, result.code) == (InvocationStatus.UNCERTAIN, "outcome_unknown")
    assert len(bank.asked) == (1 if attempt in ("nothing", "another thing") else QUICK.attempts)
    assert (await bank.office.run(run)).status is RunStatus.COMPLETED


async def test_a_service_out_of_reach_for_a_moment_is_asked_again() -> None:
    bank = Bank()
    run = await crashed(bank, paid=True)

    def at_the_second_time(key: str) -> Any:
        if len(bank.asked) == 1:
            raise OSError
        return bank.knows(key)

    bank.says = at_the_second_time
    await bank.to_the_end(run)
    assert (await bank.result(run)).status is InvocationStatus.COMPLETED


@pytest.mark.parametrize("idempotency", ["non_idempotent", "conditionally_idempotent"])
@pytest.mark.parametrize("paid", [True, False], ids=["paid", "not paid"])
async def test_a_tool_that_breaks_without_a_word_has_its_service_asked(idempotency: str, paid: bool) -> None:
    bank = Bank(idempotency=idempotency)
    if paid:
        bank.after_paying = trouble
    else:
        bank.before_paying = trouble
    run = await bank.submit()
    assert await bank.office.work() == [Ending.COMPLETED]
    expected = InvocationStatus.COMPLETED if paid else InvocationStatus.FAILED
    assert (await bank.result(run)).status is expected
    assert len(bank.asked) == 1


async def test_a_tool_that_takes_too_long_has_its_service_asked() -> None:
    bank = Bank(timeout_seconds=0.05)
    bank.after_paying = lambda: asyncio.sleep(60)
    run = await bank.submit()
    assert await bank.office.work() == [Ending.COMPLETED]
    assert (await bank.result(run)).code == "reconciled"


async def test_a_tool_whose_word_is_known_has_nobody_asked() -> None:
    for word, status in ((lambda: None, InvocationStatus.COMPLETED), (refuse, InvocationStatus.FAILED)):
        bank = Bank()
        bank.before_paying = word
        run = await bank.submit()
        await bank.office.work()
        assert (await bank.result(run)).status is status
        assert bank.asked == []


def refuse() -> None:
    raise ToolFailed("no money")


@pytest.mark.gate("exactly_once")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("paid", [True, False], ids=["paid", "not paid"])
async def test_a_crash_while_the_service_is_asked_settles_the_call_once_all_the_same(paid: bool, after: bool) -> None:
    for at in range(1, 10):
        bank = Bank()
        run = await crashed(bank, paid=paid)
        log = CrashingLog(bank.office.store.log, crash_at=at, after=after)
        try:
            await bank.office.work(log)
        except Crash:
            await bank.office.expire_leases()
        else:
            assert at > 2, "nothing was interrupted"
            return
        await bank.to_the_end(run)
        result = await bank.result(run)
        assert result.status is (InvocationStatus.COMPLETED if paid else InvocationStatus.FAILED)
        assert sum(bank.paid.values()) == paid
    raise AssertionError("the run never ended by itself")


async def test_a_drain_while_the_service_is_asked_hands_the_run_back_and_it_is_asked_again() -> None:
    bank = Bank()
    run = await crashed(bank, paid=True)
    asking = asyncio.Event()

    async def slowly(_: str) -> None:
        asking.set()
        await asyncio.Event().wait()

    bank.says = slowly
    while not (claims := await bank.office.claim()):
        await bank.office.expire_leases()
    holding = bank.office.holding(claims[0])
    execution = asyncio.ensure_future(bank.office.executor().execute(holding))
    await asking.wait()
    holding.draining = True
    holding.changed.set()
    assert await execution is Ending.HANDED_BACK
    bank.says = bank.knows
    await bank.to_the_end(run)
    assert (await bank.result(run)).code == "reconciled"
    assert (await bank.office.run(run)).lease_expirations == 1


def test_where_repeating_is_harmless_there_is_nothing_to_ask() -> None:
    for idempotency in ("read_only", "idempotent"):
        with pytest.raises(ConfigurationError, match="reconcile"):
            Bank(idempotency=idempotency)


def test_what_is_asked_takes_the_key_and_nothing_else() -> None:
    def two(key: str, cents: int) -> None:
        return None

    for wrong in (two, "refund_of"):
        app = App()
        with pytest.raises(ConfigurationError, match="reconcile"):
            app.tool(idempotency="non_idempotent", reconcile=wrong)(pay)  # type: ignore[arg-type]


async def pay(call: ToolCall, cents: int) -> None:
    """Pay."""


async def test_a_plain_function_is_asked_in_a_thread() -> None:
    app = App()
    app.tool(idempotency="non_idempotent", reconcile=Happened)(pay)
    tool: Tool = app.tools[0]
    assert tool.reconcile is not None
    assert await tool.reconcile("k") == Happened("k")

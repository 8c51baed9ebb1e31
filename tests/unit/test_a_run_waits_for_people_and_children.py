"""Questions, approvals and children: the run lets go, and goes on when the last open call is answered."""

import pytest
from support.runs import Office, office

from wakeful.app import App, ToolCall
from wakeful.domain.content import CallResult
from wakeful.domain.errors import AlreadyAnswered
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio

MIXED = [
    calls(
        call(ASK_USER, question="Which?"),
        call("refund", cents=7),
        call(DELEGATE, agent="helper", input="Look it up"),
        call("look", item="a"),
    ),
    say("Done."),
]


def build() -> tuple[Office, list[str]]:
    effects: list[str] = []

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(call: ToolCall, item: str) -> str:
            """Look."""
            effects.append(f"look {item}")
            return item

        @app.tool(idempotency="non_idempotent", approval=True)
        async def refund(call: ToolCall, cents: int) -> str:
            """Refund."""
            effects.append(f"refund {cents}")
            return "refunded"

        app.agent("clerk", model="scripted:clerk", tools=[look, refund], asks=True, delegates=["helper"])
        app.agent("asker", model="scripted:asker", asks=True)
        app.agent("payer", model="scripted:payer", tools=[refund])
        app.agent("helper", model="scripted:helper")

    scripts = {
        "clerk": MIXED,
        "asker": [calls(call(ASK_USER, question="Which?")), say("Thanks.")],
        "payer": [calls(call("refund", cents=7)), say("Done.")],
        "helper": [say("It is red.")],
    }
    return office(register, **scripts), effects


async def status_of(place: Office, ref: RunRef) -> RunStatus:
    return (await place.run(ref)).status


async def open_call(place: Office, ref: RunRef, status: InvocationStatus) -> object:
    [found] = [c.id for c in await place.calls(ref) if c.status is status]
    return found


@pytest.mark.spec("QUE-6")
async def test_a_mixed_batch_runs_what_it_can_and_waits_by_precedence() -> None:
    place, effects = build()
    ref = await place.submit("clerk", "Go")
    assert (await place.work())[0] is Ending.WAITING
    assert effects == ["look a"]
    assert await status_of(place, ref) is RunStatus.WAITING_APPROVAL
    refund = await open_call(place, ref, InvocationStatus.AWAITING_APPROVAL)
    await place.store.control.approve(place.scope, ref.run_id, refund)  # type: ignore[arg-type]
    assert await status_of(place, ref) is RunStatus.WAITING_INPUT
    question = await open_call(place, ref, InvocationStatus.AWAITING_INPUT)
    await place.store.control.answer(place.scope, ref.run_id, question, "red")  # type: ignore[arg-type]
    await place.work()
    run = await place.run(ref)
    assert run.status is RunStatus.COMPLETED
    assert effects == ["look a", "refund 7"]
    assert run.lease_expirations == 0
    results = [record.result and record.result.data for record in (await place.turns(ref))[0].calls]
    assert results == ["red", "refunded", "It is red.", "a"]


async def test_a_denied_call_never_runs_and_the_model_is_told() -> None:
    place, effects = build()
    ref = await place.submit("payer", "Go")
    await place.work()
    refund = await open_call(place, ref, InvocationStatus.AWAITING_APPROVAL)
    await place.store.control.deny(place.scope, ref.run_id, refund, note="too much")  # type: ignore[arg-type]
    await place.work()
    assert await status_of(place, ref) is RunStatus.COMPLETED
    assert effects == []
    result = (await place.turns(ref))[0].calls[0].result
    assert result is not None
    assert result.status is InvocationStatus.DENIED


async def test_a_question_is_answered_once() -> None:
    place, _ = build()
    ref = await place.submit("asker", "Go")
    await place.work()
    question = await open_call(place, ref, InvocationStatus.AWAITING_INPUT)
    await place.store.control.answer(place.scope, ref.run_id, question, "red")  # type: ignore[arg-type]
    with pytest.raises(AlreadyAnswered):
        await place.store.control.answer(place.scope, ref.run_id, question, "blue")  # type: ignore[arg-type]


async def test_an_answer_that_arrives_before_the_run_waits_is_used() -> None:
    """The worker has committed the question, not yet the waiting: the wait is refused and the run goes on."""
    place, _ = build()
    ref = await place.submit("asker", "Go")
    [claim] = await place.claim()

    class Answering:
        """Answers the question in the instant before the holder says that it waits."""

        async def append(self, append: object) -> object:
            if any(event.type == "run.waiting" for event in append.events):  # type: ignore[attr-defined]
                question = await open_call(place, ref, InvocationStatus.AWAITING_INPUT)
                await place.store.control.answer(place.scope, ref.run_id, question, "red")  # type: ignore[arg-type]
            return await place.store.log.append(append)  # type: ignore[arg-type]

        async def read(self, *args: object, **options: object) -> object:
            return await place.store.log.read(*args, **options)  # type: ignore[arg-type]

    assert await place.executor(Answering()).execute(place.holding(claim)) is Ending.COMPLETED
    assert "run.waiting" not in await place.types(ref)


async def test_a_childs_result_is_the_calls_result_and_comes_once() -> None:
    place, _ = build()
    ref = await place.submit("clerk", "Go")
    await place.work()
    await place.sweep()
    delegated = [c for c in await place.calls(ref) if c.tool == DELEGATE]
    assert [c.status for c in delegated] == [InvocationStatus.COMPLETED]
    late = CallResult(status=InvocationStatus.COMPLETED, code="ok", data="other")
    again = await place.store.control.deliver(ref, delegated[0].id, late)
    assert again.applied is False


async def test_cancelling_a_waiting_run_gives_every_open_call_one_result_and_cancels_its_children() -> None:
    place, effects = build()
    ref = await place.submit("clerk", "Go")
    [claim] = await place.claim()
    await place.executor().execute(place.holding(claim))
    await place.store.control.cancel(place.scope, ref.run_id)
    assert await status_of(place, ref) is RunStatus.CANCELLED
    assert all(record.result is not None for record in (await place.turns(ref))[0].calls)
    await place.sweep()
    [child] = [c.child_run_id for c in await place.calls(ref) if c.child_run_id]
    assert child is not None
    assert (await place.store.runs.get(place.scope, child)).status is RunStatus.CANCELLED
    assert effects == ["look a"]

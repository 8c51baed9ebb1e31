"""The loop: model turn, tool calls, results, next turn, and one guarded append to let go."""

import pytest
from support.runs import Office, office

from wakeful.app import App, ToolCall, ToolFailed
from wakeful.domain.errors import TransientModelError
from wakeful.domain.runs import Budget
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio


def build(**scripts: object) -> tuple[Office, list[str]]:
    effects: list[str] = []

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(call: ToolCall, item: str) -> dict[str, str]:
            """Look something up."""
            effects.append(f"look {item}")
            return {"item": item}

        @app.tool(idempotency="non_idempotent")
        async def pay(call: ToolCall, cents: int) -> str:
            """Pay."""
            effects.append(f"pay {cents} {call.key}")
            return "paid"

        @app.tool(idempotency="non_idempotent")
        async def broken(call: ToolCall) -> str:
            """Raise without a promise."""
            raise RuntimeError("lost the connection")

        @app.tool(idempotency="non_idempotent")
        async def declined(call: ToolCall) -> str:
            """Fail with the promise that nothing was done."""
            raise ToolFailed("no funds", code="declined")

        for name in scripts:
            app.agent(name, model=f"scripted:{name}", tools=[look, pay, broken, declined], asks=True)

    return office(register, **scripts), effects  # type: ignore[arg-type]


async def test_a_reply_without_calls_completes_the_run_in_the_turns_own_append() -> None:
    place, _ = build(greeter=[say("Hello.")])
    ref = await place.submit("greeter", "Hi")
    assert await place.work() == [Ending.COMPLETED]
    assert (await place.run(ref)).status is RunStatus.COMPLETED
    assert (await place.types(ref))[1:] == [
        "user.message.received",
        "run.queued",
        "run.started",
        "model.response.completed",
        "assistant.message.created",
        "run.completed",
    ]


async def test_each_call_is_intended_then_executed_then_answered() -> None:
    place, effects = build(clerk=[calls(call("pay", cents=5)), say("Done.")])
    ref = await place.submit("clerk", "Pay 5")
    assert await place.work() == [Ending.COMPLETED]
    [paid] = await place.calls(ref)
    assert effects == [f"pay 5 {paid.idempotency_key}"]
    assert [t for t in await place.types(ref) if t.startswith("tool.")] == ["tool.call.started", "tool.call.completed"]
    run = await place.run(ref)
    assert (run.step, run.tool_call_count) == (2, 1)


async def test_a_batch_runs_in_parallel_and_its_results_stand_in_call_order() -> None:
    place, effects = build(clerk=[calls(*(call("look", item=str(n)) for n in range(5))), say("Done.")])
    ref = await place.submit("clerk", "Look")
    assert await place.work() == [Ending.COMPLETED]
    assert sorted(effects) == [f"look {n}" for n in range(5)]
    turn = (await place.turns(ref))[0]
    results = [record.result for record in turn.calls]
    assert [result and result.data for result in results] == [{"item": str(n)} for n in range(5)]
    assert (await place.run(ref)).tool_call_count == 5


@pytest.mark.parametrize(
    ("proposed", "code"),
    [
        (call("fly"), "unknown_tool"),
        (call("look"), "invalid_arguments"),
        (call("look", item="x", more=1), "invalid_arguments"),
    ],
)
async def test_a_call_that_cannot_run_is_refused_and_the_loop_goes_on(proposed: object, code: str) -> None:
    place, effects = build(clerk=[calls(proposed), say("Sorry.")])  # type: ignore[arg-type]
    ref = await place.submit("clerk", "Try")
    assert await place.work() == [Ending.COMPLETED]
    [record] = (await place.turns(ref))[0].calls
    assert record.result is not None
    assert (record.result.status, record.result.code) == (InvocationStatus.REFUSED, code)
    assert effects == []


async def test_calls_past_the_budget_are_refused_and_not_counted() -> None:
    place, effects = build(clerk=[calls(call("look", item="a"), call("look", item="b")), say("Done.")])
    ref = await place.submit("clerk", "Look", budget=Budget(max_tool_calls=1))
    assert await place.work() == [Ending.COMPLETED]
    assert effects == ["look a"]
    assert (await place.run(ref)).tool_call_count == 1


async def test_the_third_identical_call_in_a_row_is_refused() -> None:
    again = calls(call("look", item="a"))
    place, effects = build(clerk=[again, again, again, say("Enough.")])
    ref = await place.submit("clerk", "Look")
    assert await place.work() == [Ending.COMPLETED]
    assert effects == ["look a", "look a"]
    result = (await place.turns(ref))[2].calls[0].result
    assert result is not None
    assert result.code == "repeated_call"


async def test_the_last_step_is_kept_for_an_answer_and_the_next_one_exceeds_the_budget() -> None:
    place, effects = build(clerk=[calls(call("look", item=str(n))) for n in range(3)])
    ref = await place.submit("clerk", "Look", budget=Budget(max_steps=2))
    assert await place.work() == [Ending.FAILED]
    assert effects == ["look 0"]
    run = await place.run(ref)
    assert run.failure is not None
    assert run.failure.code == "budget_exceeded"


async def test_a_non_idempotent_call_that_raises_is_uncertain_and_never_repeated() -> None:
    place, _ = build(clerk=[calls(call("broken")), say("I do not know.")])
    ref = await place.submit("clerk", "Try")
    assert await place.work() == [Ending.COMPLETED]
    [uncertain] = await place.calls(ref)
    assert uncertain.status is InvocationStatus.UNCERTAIN
    assert uncertain.attempt == 1


async def test_a_declared_failure_is_a_failure_also_of_a_non_idempotent_call() -> None:
    place, _ = build(clerk=[calls(call("declined")), say("Sorry.")])
    ref = await place.submit("clerk", "Pay")
    assert await place.work() == [Ending.COMPLETED]
    result = (await place.turns(ref))[0].calls[0].result
    assert result is not None
    assert (result.status, result.code, result.message) == (InvocationStatus.FAILED, "declined", "no funds")


@pytest.mark.spec("QUE-7")
async def test_a_permanent_model_error_fails_the_run_at_once() -> None:
    place, _ = build(clerk=[ValueError("bad request")])
    ref = await place.submit("clerk", "Hi")
    assert await place.work() == [Ending.FAILED]
    run = await place.run(ref)
    assert run.failure is not None
    assert run.failure.code == "model_permanent"
    assert run.lease_expirations == 0


@pytest.mark.spec("QUE-7")
async def test_a_transient_model_error_is_asked_again_inside_the_step() -> None:
    asked: list[int] = []

    def script(request: object) -> object:
        asked.append(1)
        return TransientModelError("busy") if len(asked) < 3 else say("Here.")

    place, _ = build(clerk=script)
    ref = await place.submit("clerk", "Hi")
    assert await place.work() == [Ending.COMPLETED]
    assert (await place.types(ref)).count("model.call.failed") == 2
    assert (await place.run(ref)).attempts == 1

"""Holding a row of the recovery table against a store: the decision, and what the executor makes of it."""

from dataclasses import replace

from support.contract import Store
from support.pasts import Past
from support.recovery_table import Row
from wakeful.domain.content import CallResult
from wakeful.domain.history import Conversation, TurnEntry
from wakeful.domain.ids import invocation_id
from wakeful.domain.runs import Budget, Claim
from wakeful.domain.states import InvocationStatus
from wakeful.runtime.resume import decide

UNLIMITED = Budget()
SMALL = Budget(max_tool_calls=0)


async def decided(store: Store, row: Row) -> tuple[Past, Claim]:
    """The row's log is written, its holder lost, and the run taken up: the whole decision is the row's."""
    past = Past(store, row.script, row.budget)
    await row.past(past)
    await past.crash()
    if row.amended:
        past.amended = UNLIMITED if row.budget.max_tool_calls is not None else SMALL
    tokens = (await past.run()).token_count
    claim, execution = await past.load()
    conversation = Conversation.of(list(execution.history))
    calls = tuple(invocation_id(past.ref.run_id, *each) for each in row.dropped_calls)
    made = decide(execution.run, execution.checkpoint, conversation, execution.invocations)
    assert made == row.decision(tokens, replace(row.dropped, calls=calls)), made
    again = decide(execution.run, execution.checkpoint, conversation, execution.invocations)
    assert again == made
    return past, claim


async def held(store: Store, untouched: Store, row: Row) -> None:
    """The executor takes it to its end: the model asked only where it must be, no effect twice, counters alike."""
    past, claim = await decided(store, row)
    await past.rest(claim)
    turns = await past.turns()
    assert tuple(past.seen.asked) == row.asked, past.seen.asked
    assert sorted(past.seen.effects.elements()) == sorted(row.effects), past.seen.effects
    assert codes(turns) == row.codes, codes(turns)
    types = await past.types()
    results = sum(len(turn.calls) for turn in turns)
    assert sum(types.count(f"tool.call.{end}") for end in ENDS) == results, "one result per call"
    if past.seen.views:
        assert past.seen.views[0].continuation == row.continuation
    await alike(past, untouched, row)


async def alike(past: Past, untouched: Store, row: Row) -> None:
    """As the run without a crash: its end, and its counters."""
    twin = Past(untouched, row.script, row.budget)
    await twin.submit()
    await twin.rest()
    run, other = await past.run(), await twin.run()
    assert (run.status, run.step, run.token_count) == (other.status, other.step, other.token_count), (run, other)
    assert run.tool_call_count == (other.tool_call_count if row.final_count is None else row.final_count), run
    if row.context_updates:
        assert past.seen.views[-1].context_updates == twin.seen.views[-1].context_updates != {}
    assert [turn.content for turn in await past.turns()] == [turn.content for turn in await twin.turns()]


ENDS = ("completed", "failed", "refused", "denied", "cancelled", "uncertain")


def codes(turns: list[TurnEntry]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(code(record.result) for record in turn.calls) for turn in turns)


def code(result: CallResult | None) -> str:
    if result is None:
        return "no result"
    return f"{result.code}: UNCERTAIN" if result.status is InvocationStatus.UNCERTAIN else result.code

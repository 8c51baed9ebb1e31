"""A long run sends every past turn at every step: what cannot change any more is rendered once."""

import pytest

from wakeful.domain.content import CallResult, ProposedCall
from wakeful.domain.history import CallRecord, TurnEntry
from wakeful.domain.ids import new_id
from wakeful.domain.states import InvocationStatus
from wakeful.runtime.agent_driver import assemble

pytestmark = pytest.mark.anyio

RESULT = CallResult(status=InvocationStatus.COMPLETED, code="ok", message="found", data=1)


def turn(*results: CallResult | None) -> TurnEntry:
    calls = [
        CallRecord(new_id(), ProposedCall(position=place, tool="look", arguments="{}", provider_call_id=""), result)
        for place, result in enumerate(results)
    ]
    return TurnEntry(sequence=1, run_id=new_id(), step=1, content="so", calls=calls)


async def test_an_answered_turn_gives_the_same_messages_without_being_rendered_again() -> None:
    entry = turn(RESULT, RESULT)
    first = await assemble([entry], None)
    again = await assemble([entry], None)
    assert [id(message) for message in again] == [id(message) for message in first]
    assert [message.role for message in first] == ["assistant", "tool", "tool"]


async def test_a_turn_whose_call_is_open_shows_the_result_that_comes_later() -> None:
    entry = turn(RESULT, None)
    open_ = await assemble([entry], None)
    assert open_[-1].result is not None
    assert open_[-1].result.code == "no_result"
    entry.calls[1].result = RESULT
    assert (await assemble([entry], None))[-1].result == RESULT

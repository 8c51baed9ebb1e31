"""Session history: whatever the projection has seen of it, readers get what the log holds."""

import pytest
from support.contract import World, call, result, said, turn_of

from wakeful.domain.appends import Append, RunChange
from wakeful.domain.content import ProposedCall
from wakeful.domain.events.runs import RunCompleted
from wakeful.domain.events.turns import AssistantMessageCreated, CallCompleted, ModelResponseCompleted
from wakeful.domain.history import CONVERSATION_TYPES, Conversation, MessageEntry, TurnEntry
from wakeful.domain.ids import new_id
from wakeful.domain.projections import StateRef
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import SessionRef
from wakeful.domain.session_history import SessionHistory
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.domain.trajectories import Trajectories
from wakeful.projections.advancing import advance, catch_up
from wakeful.projections.rebuilding import rebuild

pytestmark = [pytest.mark.anyio, pytest.mark.spec("PRJ-5")]

HISTORY = SessionHistory()


def state_of(session: SessionRef) -> StateRef:
    return StateRef(session.tenant_id, session.session_id)


def proposing(step: int, calls: int) -> AssistantMessageCreated:
    proposed = [ProposedCall(position=position, tool="look", arguments="{}") for position in range(calls)]
    return AssistantMessageCreated(step=step, content=f"step {step}", calls=proposed)


def response(step: int) -> ModelResponseCompleted:
    return ModelResponseCompleted(
        step=step, provider="p", model="m", finish_reason="stop", tool_call_count_before_turn=step - 1
    )


async def talk(world: World, steps: int = 4) -> Lease:
    """A run whose calls are answered after the next user message, the last ones not at all."""
    lease = await world.running()
    for step in range(1, steps + 1):
        calls = [call(lease.run, position, step=step) for position in range(2)]
        await world.append(lease, response(step), proposing(step, 2), run=RunChange(step=step), proposals=tuple(calls))
        await world.store.log.append(Append(lease.run.session, (said(f"meanwhile {step}"),)))
        if step == steps:
            break
        for new in reversed(calls):
            await world.store.log.append(world.ending(lease, new, CallCompleted, result()))
    return lease


async def from_the_log(world: World, session: SessionRef) -> Conversation:
    return Conversation.of(await world.store.log.read(session))


@pytest.mark.parametrize("seen", [0, 1, 5, 7, 1000])
async def test_history_is_the_same_however_far_the_projection_got(world: World, seen: int) -> None:
    lease = await talk(world)
    if seen:
        await advance(world.store.projections, HISTORY, state_of(lease.run.session), batch=seen)
    assert await world.store.history.read(lease.run.session) == (await from_the_log(world, lease.run.session)).entries


async def test_a_page_is_cut_from_the_whole_at_any_place(world: World) -> None:
    lease = await talk(world)
    session = lease.run.session
    whole = (await from_the_log(world, session)).entries
    assert len(whole) == 9
    for seen in (None, 6, None):
        if seen:
            await advance(world.store.projections, HISTORY, state_of(session), batch=seen)
        for start in range(len(whole)):
            place = whole[start].sequence
            read = world.store.history.read
            assert await read(session, after=place) == whole[start + 1 :]
            assert await read(session, after=place, limit=2) == whole[start + 1 : start + 3]
            assert await read(session, before=place) == whole[:start]
            assert await read(session, before=place, limit=2, newest=True) == whole[max(start - 2, 0) : start]
        await catch_up(world.store.projections, HISTORY, state_of(session))


async def test_a_turn_on_a_page_has_its_results_wherever_they_were_committed(world: World) -> None:
    lease = await talk(world, steps=2)
    await catch_up(world.store.projections, HISTORY, state_of(lease.run.session))
    message, turn = await world.store.history.read(lease.run.session, limit=2)
    assert isinstance(message, MessageEntry)
    assert isinstance(turn, TurnEntry)
    assert len(turn.calls) == 2
    assert not turn.unanswered


async def test_a_run_is_seeded_with_every_run_before_it(world: World) -> None:
    lease = await talk(world, steps=1)
    answered = call(lease.run, 0, step=1)
    await world.store.log.append(world.ending(lease, answered, CallCompleted, result()))
    await world.store.log.append(world.ending(lease, call(lease.run, 1, step=1), CallCompleted, result()))
    await world.append(
        lease, turn_of(2, "done"), RunCompleted(steps=2, tool_calls=2), run=RunChange(RunStatus.COMPLETED)
    )
    session = await world.store.sessions.get(world.scope, lease.run.session_id)
    await advance(world.store.projections, HISTORY, state_of(lease.run.session), batch=4)
    await world.store.queue.submit(world.submission(session, "and now?"))
    second = await world.claim()
    loaded = await world.store.queue.load(second)
    log = await world.store.log.read(lease.run.session)
    assert list(loaded.history) == [event for event in log if event.type in CONVERSATION_TYPES]
    assert loaded.last_sequence == log[-1].sequence


async def test_a_second_result_a_stray_result_and_a_turn_without_a_run_change_nothing(world: World) -> None:
    lease = await talk(world, steps=2)
    stray = CallCompleted(invocation_id=new_id(), step=9, position=0, tool="look", result=result())
    again = CallCompleted(
        invocation_id=call(lease.run, 0, step=1).id,
        step=1,
        position=0,
        tool="look",
        result=result(InvocationStatus.FAILED),
    )
    await world.append(lease, stray, again, proposing(2, 1))
    await world.store.log.append(Append(lease.run.session, (said("after"),)))
    await catch_up(world.store.projections, HISTORY, state_of(lease.run.session), batch=3)
    assert await world.store.history.read(lease.run.session) == (await from_the_log(world, lease.run.session)).entries


@pytest.mark.gate("projection_determinism")
@pytest.mark.spec("PRJ-3")
async def test_history_built_from_zero_equals_history_built_on_the_way(world: World) -> None:
    lease = await world.running()
    state = state_of(lease.run.session)
    for step in range(1, 6):
        new = call(lease.run, 0, step=step)
        await world.append(lease, response(step), proposing(step, 1), run=RunChange(step=step), proposals=(new,))
        await catch_up(world.store.projections, HISTORY, state, batch=1)
        await world.store.log.append(world.ending(lease, new, CallCompleted, result()))
    await catch_up(world.store.projections, HISTORY, state, batch=1)
    before = await world.store.projections.stored(HISTORY, state)
    await rebuild(world.store.projections, HISTORY, state)
    after = await world.store.projections.stored(HISTORY, state)
    assert (after.documents, after.marks) == (before.documents, before.marks)
    assert [document.body for document in after.documents][-1] == [17, 18, 19]


@pytest.mark.spec("PRJ-8")
async def test_a_trajectory_is_a_range_of_the_log_and_how_the_run_ended(world: World) -> None:
    finished, going = await world.running(), await world.running()
    await world.append(finished, turn_of(1, "done"), run=RunChange(step=1))
    await world.end(finished, RunStatus.FAILED)
    await world.store.log.append(Append(finished.run.session, (said("later"),)))
    for lease in (finished, going):
        await catch_up(world.store.projections, Trajectories(), state_of(lease.run.session))
    (document,) = (await world.store.projections.stored(Trajectories(), state_of(finished.run.session))).documents
    assert document.body == {"first": 2, "last": 6, "status": "FAILED", "builder_version": "1"}
    (unfinished,) = (await world.store.projections.stored(Trajectories(), state_of(going.run.session))).documents
    assert (unfinished.body, unfinished.position) == ({"first": 2}, 0)


async def test_an_unknown_or_foreign_session_reads_as_empty(world: World) -> None:
    session = await world.session()
    await world.store.log.append(Append(session.ref, (said("hello"),)))
    assert await world.store.history.read(SessionRef(world.scope.tenant_id, new_id())) == []
    assert await world.store.history.read(SessionRef(new_id(), session.session_id)) == []

"""The event log: appends are in order, guarded by the lease and safe to do again; readers wait for nothing."""

from dataclasses import replace

import pytest
from support.contract import WORKER, World, call, checkpoint, later, note, outcomes, result, said, stranger, turn_of

from wakeful.domain.appends import Append, RunChange
from wakeful.domain.content import ProposedCall
from wakeful.domain.errors import (
    Fenced,
    InvalidInput,
    InvalidPayload,
    SessionGone,
    WakefulError,
)
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunFenced, UserMessageReceived
from wakeful.domain.events.turns import AssistantMessageCreated, CallCompleted
from wakeful.domain.ids import derived_id, new_id
from wakeful.domain.scopes import SessionRef
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

TERMINAL = [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]


@pytest.mark.spec("LOG-1")
async def test_events_of_one_append_stand_at_consecutive_sequences_behind_the_last(world: World) -> None:
    lease = await world.running()
    before = (await world.facts(lease.run)).session.last_sequence
    appended = await world.append(lease, note("a"), note("b"), note("c"))
    assert (appended.first_sequence, appended.last_sequence) == (before + 1, before + 3)
    events = await world.store.log.read(lease.run.session, after=before)
    assert [event.sequence for event in events] == [before + 1, before + 2, before + 3]
    assert (await world.facts(lease.run)).session.last_sequence == before + 3


async def test_an_event_is_read_as_it_was_written(world: World) -> None:
    lease = await world.running()
    calls = [ProposedCall(position=0, tool="look", arguments='{"q": "\\u00e9 日本 🎈"}', provider_call_id="p1")]
    payload = AssistantMessageCreated(step=1, content=[{"type": "text", "text": "ß", "n": 12345678901234}], calls=calls)
    event = NewEvent(
        payload, Actor("model", "m1"), run_id=lease.run.run_id, trace_id="4bf92f3577b34da6a3ce929d0e0e4736"
    )
    appended = await world.store.log.append(Append(lease.run.session, (event,), lease))
    (read,) = await world.store.log.read(lease.run.session, after=appended.first_sequence - 1)
    assert read.payload == payload
    assert (read.event_id, read.run_id, read.actor, read.trace_id) == (
        event.event_id,
        event.run_id,
        event.actor,
        event.trace_id,
    )
    assert (read.version, read.sequence) == (payload.VERSION, appended.first_sequence)
    assert (read.tenant_id, read.session_id) == (lease.run.tenant_id, lease.run.session_id)


async def test_the_time_of_an_append_is_the_time_of_its_events_and_of_what_it_changes_in_its_run(world: World) -> None:
    lease = await world.running()
    appended = await world.append(lease, note("a"), note("b"))
    facts = await world.facts(lease.run)
    assert [event.created_at for event in facts.events[-2:]] == [appended.at, appended.at]
    assert facts.run.updated_at < appended.at
    stepped = (await world.turn(lease)).at
    facts = await world.facts(lease.run)
    assert (facts.run.updated_at, facts.events[-1].created_at) == (stepped, stepped)


async def test_times_never_move_back_along_the_log(world: World) -> None:
    lease = await world.running()
    for _ in range(5):
        await world.append(lease, note())
    times = [event.created_at for event in await world.store.log.read(lease.run.session)]
    assert times == sorted(times)


@pytest.mark.spec("LOG-7")
async def test_an_append_moves_the_sessions_activity_to_its_own_time(world: World) -> None:
    lease = await world.running()
    appended = await world.append(lease, note())
    assert (await world.facts(lease.run)).session.updated_at == appended.at


async def test_the_same_event_ids_again_return_the_first_success_and_change_nothing(world: World) -> None:
    lease = await world.running()
    request = world.request(lease, note("a"), note("b"), run=RunChange(add_tokens=7), checkpoint=checkpoint())
    first = await world.store.log.append(request)
    facts = await world.facts(lease.run)
    again = await world.store.log.append(request)
    assert (again.repeated, again.checkpoint) == (True, None)
    assert replace(again, repeated=False, checkpoint=first.checkpoint) == first
    assert await world.facts(lease.run) == facts


async def test_a_terminal_append_whose_answer_was_lost_is_recognized_though_the_lease_is_gone(world: World) -> None:
    lease = await world.running()
    request = world.request(lease, note(), run=RunChange(RunStatus.COMPLETED))
    first = await world.store.log.append(request)
    again = await world.store.log.append(request)
    assert again.repeated
    assert again.first_sequence == first.first_sequence


async def test_an_append_repeated_at_the_same_moment_happens_once(world: World) -> None:
    lease = await world.running()
    request = world.request(lease, note(), run=RunChange(add_tokens=5))
    answers, raised = await outcomes(*(world.store.log.append(request) for _ in range(6)))
    assert raised == []
    assert sorted(answer.repeated for answer in answers) == [False] + [True] * 5
    assert len({answer.first_sequence for answer in answers}) == 1
    assert (await world.facts(lease.run)).run.token_count == 5


@pytest.mark.spec("LOG-4")
async def test_concurrent_appends_take_turns_in_the_session(world: World) -> None:
    session = await world.session()
    answers, raised = await outcomes(
        *(world.store.log.append(Append(session.ref, (said(f"{n}a"), said(f"{n}b")))) for n in range(12))
    )
    assert raised == []
    assert len({answer.first_sequence for answer in answers}) == 12
    events = await world.store.log.read(session.ref, after=1)
    assert [event.sequence for event in events] == list(range(2, 26))
    texts = [str(event.payload.content) for event in events if isinstance(event.payload, UserMessageReceived)]
    assert [text[:-1] for text in texts[::2]] == [text[:-1] for text in texts[1::2]]


async def test_an_unknown_session_is_gone(world: World) -> None:
    with pytest.raises(SessionGone):
        await world.store.log.append(Append(SessionRef(world.scope.tenant_id, new_id()), (said("hello"),)))


async def test_an_append_without_an_event_is_refused(world: World) -> None:
    lease = await world.running()
    with pytest.raises(InvalidInput):
        await world.store.log.append(Append(lease.run.session, (), lease, RunChange(add_tokens=1)))


@pytest.mark.spec("LOG-9")
async def test_another_tenants_session_is_gone_and_stays_untouched(world: World) -> None:
    session = await world.session()
    with pytest.raises(SessionGone):
        await world.store.log.append(Append(SessionRef(new_id(), session.session_id), (said("hello"),)))
    assert await world.types(session.ref) == ["session.created"]


@pytest.mark.spec("LOG-3")
@pytest.mark.parametrize("wrong", ["owner", "epoch", "earlier epoch", "run"])
async def test_a_lease_that_is_not_the_current_one_is_fenced(world: World, wrong: str) -> None:
    lease = await world.running()
    stale = {
        "owner": stranger(lease),
        "epoch": replace(lease, epoch=lease.epoch + 1),
        "earlier epoch": replace(lease, epoch=lease.epoch - 1),
        "run": replace(lease, run=replace(lease.run, run_id=new_id())),
    }[wrong]
    with pytest.raises(Fenced) as fenced:
        await world.append(stale, note())
    assert (fenced.value.run_id, fenced.value.epoch) == (stale.run.run_id, stale.epoch)


@pytest.mark.spec("LOG-3")
@pytest.mark.parametrize("status", [*TERMINAL, RunStatus.QUEUED, RunStatus.WAITING_INPUT])
async def test_a_holder_whose_run_is_not_running_any_more_is_fenced(world: World, status: RunStatus) -> None:
    lease = await world.running()
    if status is RunStatus.QUEUED:
        await world.hand_back(lease)
    elif status is RunStatus.WAITING_INPUT:
        await world.turn(lease, call(lease.run, status=InvocationStatus.AWAITING_INPUT))
        await world.park(lease, status)
    else:
        await world.end(lease, status)
    with pytest.raises(Fenced):
        await world.append(lease, note())


@pytest.mark.spec("LOG-2")
@pytest.mark.spec("QUE-5")
async def test_a_fenced_append_leaves_nothing_behind(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    before = await world.facts(lease.run)
    request = replace(
        world.ending(stranger(lease), new, CallCompleted, result()),
        run=RunChange(RunStatus.COMPLETED, step=9, add_tokens=9),
        proposals=(call(lease.run, 1, step=9),),
        checkpoint=checkpoint(),
    )
    with pytest.raises(Fenced):
        await world.store.log.append(request)
    after = await world.facts(lease.run)
    assert after.events == before.events
    assert (after.run, after.calls, after.checkpoint) == (before.run, before.calls, before.checkpoint)


@pytest.mark.spec("QUE-4")
async def test_a_fenced_worker_may_say_so_once_without_a_lease(world: World) -> None:
    lease = await world.running()
    await world.end(lease)
    fenced = NewEvent(
        RunFenced(epoch=1), WORKER, lease.run.run_id, event_id=derived_id("fenced", lease.run.run_id, lease.epoch)
    )
    append = Append(lease.run.session, (fenced,))
    first, again = await world.store.log.append(append), await world.store.log.append(append)
    assert (first.repeated, again.repeated) == (False, True)
    assert (await world.types(lease.run.session)).count("run.fenced") == 1


@pytest.mark.parametrize("part", ["run", "proposals", "changes", "checkpoint"])
async def test_without_a_lease_an_append_may_hold_events_only(world: World, part: str) -> None:
    lease = await world.running()
    full = replace(
        world.ending(lease, call(lease.run), CallCompleted, result()),
        run=RunChange(),
        proposals=(call(lease.run),),
        checkpoint=checkpoint(),
    )
    bare = Append(lease.run.session, (said("hello"),))
    with pytest.raises(InvalidInput):
        await world.store.log.append(replace(bare, **{part: getattr(full, part)}))


async def test_an_append_may_not_reach_into_another_session_than_its_runs(world: World) -> None:
    lease = await world.running()
    other = await world.session()
    with pytest.raises(WakefulError):
        await world.store.log.append(replace(world.request(lease, note()), session=other.ref))
    assert await world.types(other.ref) == ["session.created"]


@pytest.mark.parametrize("text", ["a\x00b", "lone \ud800"])
async def test_text_that_the_log_cannot_hold_is_refused_before_anything_is_written(world: World, text: str) -> None:
    lease = await world.running()
    before = await world.facts(lease.run)
    with pytest.raises(InvalidPayload):
        await world.append(lease, note("ok"), UserMessageReceived(content=text), run=RunChange(add_tokens=1))
    assert await world.facts(lease.run) == before


async def test_what_was_appended_does_not_change_with_the_writers_value(world: World) -> None:
    session = await world.session()
    parts = [{"type": "text", "text": "before"}]
    await world.store.log.append(
        Append(session.ref, (NewEvent(UserMessageReceived(content=parts), Actor("platform")),))
    )
    parts[0]["text"] = "after"
    (event,) = await world.store.log.read(session.ref, after=1)
    assert isinstance(event.payload, UserMessageReceived)
    assert event.payload.content == [{"type": "text", "text": "before"}]


async def test_what_was_read_does_not_share_anything_with_the_log(world: World) -> None:
    session = await world.session()
    payload = UserMessageReceived(content=[{"type": "text", "text": "before"}])
    await world.store.log.append(Append(session.ref, (NewEvent(payload, Actor("platform")),)))
    (event,) = await world.store.log.read(session.ref, after=1)
    assert isinstance(event.payload, UserMessageReceived)
    assert isinstance(event.payload.content, list)
    event.payload.content[0]["text"] = "after"
    (again,) = await world.store.log.read(session.ref, after=1)
    assert isinstance(again.payload, UserMessageReceived)
    assert again.payload.content == [{"type": "text", "text": "before"}]


@pytest.mark.spec("LOG-5")
async def test_reading_starts_behind_the_watermark_and_stops_at_the_limit(world: World) -> None:
    session = await world.session()
    for number in range(5):
        await world.store.log.append(Append(session.ref, (said(str(number)),)))
    read = world.store.log.read
    assert [event.sequence for event in await read(session.ref, after=2)] == [3, 4, 5, 6]
    assert [event.sequence for event in await read(session.ref, after=2, limit=2)] == [3, 4]
    assert await read(session.ref, after=6) == []
    assert await read(session.ref, after=1_000_000) == []


async def test_reading_some_types_counts_only_those_against_the_limit(world: World) -> None:
    lease = await world.running()
    await world.append(lease, note(), turn_of(), note(), turn_of(2))
    events = await world.store.log.read(lease.run.session, types=["assistant.message.created"], limit=2)
    assert [event.type for event in events] == ["assistant.message.created"] * 2
    assert await world.store.log.read(lease.run.session, types=[]) == []


@pytest.mark.spec("LOG-9")
async def test_unknown_and_foreign_sessions_read_as_empty(world: World) -> None:
    session = await world.session()
    assert await world.store.log.read(SessionRef(world.scope.tenant_id, new_id())) == []
    assert await world.store.log.read(SessionRef(new_id(), session.session_id)) == []


async def test_two_holders_with_one_run_write_as_one(world: World) -> None:
    lease = await world.running()
    await world.crashed(lease)
    current = await world.claim(owner=new_id(), now=later())
    answers, raised = await outcomes(world.append(lease, note("old")), world.append(current, note("new")))
    assert len(answers) == 1
    assert [type(error) for error in raised] == [Fenced]

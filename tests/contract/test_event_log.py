"""The event log: appends are all or nothing, guarded, in order, and safe to do again."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.contract import WORKER, World, call, checkpoint, later, outcomes, result, stranger, turn_of

from wakeful.domain.appends import Append, RunChange
from wakeful.domain.content import Failure, ProposedCall
from wakeful.domain.errors import (
    AlreadyAnswered,
    Arrived,
    CallMismatch,
    CancelAsked,
    Fenced,
    InvalidInput,
    InvalidPayload,
    SessionGone,
    WakefulError,
)
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunCheckpointed, RunFenced, UserMessageReceived
from wakeful.domain.events.turns import AssistantMessageCreated, CallCompleted, CallFailed
from wakeful.domain.ids import derived_id, new_id
from wakeful.domain.scopes import SessionRef
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

TERMINAL = [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]


def note(text: str = "note") -> RunCheckpointed:
    """An event that changes nothing else."""
    return RunCheckpointed(trigger=text)


def said(text: str) -> NewEvent:
    return NewEvent(UserMessageReceived(content=text), Actor("platform"))


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


async def test_the_time_of_an_append_is_the_time_of_its_events_and_of_its_run(world: World) -> None:
    lease = await world.running()
    appended = await world.append(lease, note("a"), note("b"))
    facts = await world.facts(lease.run)
    assert [event.created_at for event in facts.events[-2:]] == [appended.at, appended.at]
    assert facts.run.updated_at == appended.at


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
    assert again.repeated
    assert replace(again, repeated=False) == first
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


@pytest.mark.parametrize("status", [*TERMINAL, RunStatus.QUEUED])
async def test_leaving_running_gives_the_lease_back(world: World, status: RunStatus) -> None:
    lease = await world.running()
    await (world.hand_back(lease) if status is RunStatus.QUEUED else world.end(lease, status))
    run = (await world.facts(lease.run)).run
    assert run.status is status
    assert (run.lease_owner, run.lease_expires_at) == (None, None)
    assert run.lease_epoch == lease.epoch


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_terminal_append_stamps_when_the_run_ended(world: World, status: RunStatus) -> None:
    lease = await world.running()
    appended = await world.end(lease, status)
    assert (await world.facts(lease.run)).run.finished_at == appended.at


async def test_a_start_is_stamped_once(world: World) -> None:
    lease = await world.running()
    started = (await world.facts(lease.run)).run.started_at
    assert started is not None
    await world.append(lease, note(), run=RunChange(started=True))
    assert (await world.facts(lease.run)).run.started_at == started


async def test_a_committed_step_is_recorded(world: World) -> None:
    lease = await world.running()
    await world.turn(lease, step=1)
    await world.turn(lease, step=2)
    assert (await world.facts(lease.run)).run.step == 2


async def test_a_committed_step_clears_the_suspicion_and_no_other_append_does(world: World) -> None:
    await world.crashed(await world.running())
    lease = await world.claim(now=later())
    await world.append(lease, note())
    assert (await world.facts(lease.run)).run.suspect
    await world.turn(lease)
    run = (await world.facts(lease.run)).run
    assert not run.suspect
    assert run.lease_expirations == 1


async def test_the_tool_call_count_is_the_greatest_it_was_ever_set_to(world: World) -> None:
    lease = await world.running()
    for count in (3, 2, 5, 5):
        await world.append(lease, note(), run=RunChange(tool_call_count=count))
    assert (await world.facts(lease.run)).run.tool_call_count == 5


async def test_tokens_add_up(world: World) -> None:
    lease = await world.running()
    for tokens in (100, 23):
        await world.append(lease, note(), run=RunChange(add_tokens=tokens))
    assert (await world.facts(lease.run)).run.token_count == 123


async def test_a_failure_is_kept_as_plain_data(world: World) -> None:
    lease = await world.running()
    failure = Failure(code="budget_exceeded", message="no steps left", step=3, attempts=[{"epoch": 1}])
    await world.append(lease, note(), run=RunChange(RunStatus.FAILED, failure=failure))
    assert (await world.facts(lease.run)).run.failure == failure


async def test_a_run_handed_back_with_a_delay_is_not_due_before_it_has_passed(world: World) -> None:
    lease = await world.running()
    await world.hand_back(lease, delay=timedelta(minutes=10))
    assert await world.claims() == []
    assert await world.claims(now=later(500)) == []
    assert len(await world.claims(now=later(700))) == 1


async def test_a_run_handed_back_counts_no_crash_and_is_due_at_once(world: World) -> None:
    lease = await world.running()
    await world.hand_back(lease)
    again = await world.claim()
    assert again.epoch == lease.epoch + 1
    run = (await world.facts(lease.run)).run
    assert (run.lease_expirations, run.suspect, run.attempts) == (0, False, 2)


@pytest.mark.parametrize(
    ("calls", "status"),
    [
        ([InvocationStatus.AWAITING_CHILD], RunStatus.WAITING_CHILD),
        ([InvocationStatus.AWAITING_INPUT, InvocationStatus.AWAITING_CHILD], RunStatus.WAITING_INPUT),
        ([InvocationStatus.AWAITING_CHILD, InvocationStatus.AWAITING_APPROVAL], RunStatus.WAITING_APPROVAL),
        ([InvocationStatus.AWAITING_INPUT, InvocationStatus.AWAITING_APPROVAL], RunStatus.WAITING_APPROVAL),
    ],
)
async def test_a_run_waits_for_approval_before_input_before_a_child(
    world: World, calls: list[InvocationStatus], status: RunStatus
) -> None:
    run, _ = await world.waiting(*calls)
    facts = await world.facts(run)
    assert facts.run.status is status
    assert (facts.run.lease_owner, facts.run.lease_expires_at) == (None, None)
    assert facts.types[-1] == "run.waiting"


async def test_waiting_is_refused_when_the_answer_arrived_in_between(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.turn(lease, question)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "yes")
    before = await world.facts(lease.run)
    with pytest.raises(Arrived):
        await world.park(lease, RunStatus.WAITING_INPUT)
    assert await world.facts(lease.run) == before


async def test_waiting_for_something_else_than_the_open_calls_call_for_is_refused(world: World) -> None:
    lease = await world.running()
    await world.turn(lease, call(lease.run, status=InvocationStatus.AWAITING_APPROVAL))
    with pytest.raises(Arrived):
        await world.park(lease, RunStatus.WAITING_INPUT)


async def test_waiting_is_refused_while_a_call_can_be_executed(world: World) -> None:
    lease = await world.running()
    question, allowed = (call(lease.run, place, status=InvocationStatus.AWAITING_INPUT) for place in (0, 1))
    allowed = replace(allowed, status=InvocationStatus.AWAITING_APPROVAL)
    await world.turn(lease, question, allowed)
    await world.store.control.approve(world.scope, lease.run.run_id, allowed.id)
    with pytest.raises(Arrived):
        await world.park(lease, RunStatus.WAITING_INPUT)


async def test_waiting_is_judged_with_the_calls_of_the_very_append(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.append(lease, turn_of(), run=RunChange(RunStatus.WAITING_INPUT, step=1), proposals=(question,))
    assert (await world.facts(lease.run)).run.status is RunStatus.WAITING_INPUT


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.WAITING_INPUT])
async def test_a_run_that_was_asked_to_cancel_may_not_be_released_to_go_on_later(
    world: World, status: RunStatus
) -> None:
    lease = await world.running()
    await world.turn(lease, call(lease.run, status=InvocationStatus.AWAITING_INPUT))
    await world.store.control.cancel(world.scope, lease.run.run_id)
    before = await world.facts(lease.run)
    with pytest.raises(CancelAsked):
        await (world.hand_back(lease) if status is RunStatus.QUEUED else world.park(lease, status))
    assert await world.facts(lease.run) == before


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_run_that_was_asked_to_cancel_may_be_ended_by_its_holder(world: World, status: RunStatus) -> None:
    lease = await world.running()
    await world.store.control.cancel(world.scope, lease.run.run_id)
    await world.end(lease, status)
    assert (await world.facts(lease.run)).run.status is status


async def test_every_append_tells_the_holder_whether_cancelling_was_asked(world: World) -> None:
    lease = await world.running()
    request = world.request(lease, note())
    assert not (await world.store.log.append(request)).cancel_requested
    await world.store.control.cancel(world.scope, lease.run.run_id)
    assert (await world.append(lease, note())).cancel_requested
    assert (await world.store.log.append(request)).cancel_requested


@pytest.mark.parametrize(
    "status", [InvocationStatus.REQUESTED, InvocationStatus.RUNNING, InvocationStatus.AWAITING_INPUT]
)
async def test_a_run_cannot_end_while_a_call_has_no_result(world: World, status: InvocationStatus) -> None:
    lease = await world.running()
    new = call(lease.run, status=InvocationStatus.REQUESTED if status is InvocationStatus.RUNNING else status)
    await world.turn(lease, new)
    if status is InvocationStatus.RUNNING:
        await world.start_call(lease, new)
    before = await world.facts(lease.run)
    with pytest.raises(WakefulError):
        await world.end(lease)
    assert await world.facts(lease.run) == before


async def test_a_run_may_end_in_the_append_that_gives_its_last_call_a_result(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    ending = world.ending(lease, new, CallCompleted, result())
    await world.store.log.append(replace(ending, run=RunChange(RunStatus.COMPLETED)))
    facts = await world.facts(lease.run)
    assert facts.run.status is RunStatus.COMPLETED
    assert facts.status_of(new.id) is InvocationStatus.COMPLETED


async def test_a_proposed_call_is_recorded_with_its_turn(world: World) -> None:
    lease = await world.running()
    new = call(lease.run, 2, step=3, provider_call_id="p7", tool="mail", arguments_hash="b" * 64)
    appended = await world.turn(lease, new, step=3)
    (stored,) = (await world.facts(lease.run)).calls
    assert (stored.id, stored.run, stored.idempotency_key) == (new.id, lease.run, str(new.id))
    assert (stored.step, stored.position, stored.tool, stored.provider_call_id) == (3, 2, "mail", "p7")
    assert (stored.status, stored.attempt, stored.epoch) == (InvocationStatus.REQUESTED, 0, None)
    assert stored.created_at == appended.at


async def test_a_question_stays_open_for_its_time_from_the_append_on(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT, expires_in=timedelta(minutes=5))
    appended = await world.turn(lease, question)
    (stored,) = (await world.facts(lease.run)).calls
    assert stored.expires_at == appended.at + timedelta(minutes=5)


async def test_a_call_proposed_again_is_the_same_call(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    await world.start_call(lease, new)
    before = (await world.facts(lease.run)).calls
    await world.turn(lease, new)
    assert (await world.facts(lease.run)).calls == before


@pytest.mark.parametrize("other", [{"tool": "another"}, {"arguments_hash": "f" * 64}])
async def test_another_call_at_the_same_place_is_a_mismatch_that_leaves_nothing_behind(
    world: World, other: dict[str, Any]
) -> None:
    lease = await world.running()
    await world.turn(lease, call(lease.run))
    before = await world.facts(lease.run)
    with pytest.raises(CallMismatch):
        await world.turn(lease, call(lease.run, 1), call(lease.run, **other))
    assert await world.facts(lease.run) == before


async def test_an_intent_records_epoch_attempt_and_first_start(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    first = await world.start_call(lease, new)
    await world.start_call(lease, new)
    (stored,) = (await world.facts(lease.run)).calls
    assert (stored.status, stored.epoch, stored.attempt) == (InvocationStatus.RUNNING, lease.epoch, 2)
    assert stored.started_at == first.at


async def test_a_result_ends_its_call_and_keeps_its_context_updates(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    ending = world.ending(lease, new, CallCompleted, result(data={"n": [1, 2]}), context_updates={"cart": ["a"]})
    appended = await world.store.log.append(ending)
    facts = await world.facts(lease.run)
    (stored,) = facts.calls
    assert (stored.status, stored.finished_at) == (InvocationStatus.COMPLETED, appended.at)
    assert stored.context_updates == {"cart": ["a"]}
    assert facts.result_of(new.id).data == {"n": [1, 2]}


async def test_a_result_that_somebody_else_gave_is_no_repetition_of_ones_own(world: World) -> None:
    """A result's event id is the call's, so the id alone does not say whose result stands there."""
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.turn(lease, question)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "first")
    before = await world.facts(lease.run)
    with pytest.raises(AlreadyAnswered):
        await world.store.log.append(world.ending(lease, question, CallCompleted, result()))
    assert await world.facts(lease.run) == before


async def test_a_call_has_one_result_and_a_second_is_refused_whoever_writes_it(world: World) -> None:
    lease = await world.running()
    question = call(lease.run, status=InvocationStatus.AWAITING_INPUT)
    await world.turn(lease, question)
    await world.store.control.answer(world.scope, lease.run.run_id, question.id, "first")
    before = await world.facts(lease.run)
    second = world.ending(lease, question, CallFailed, result(InvocationStatus.FAILED))
    with pytest.raises(AlreadyAnswered):
        await world.store.log.append(replace(second, events=(*second.events, *world.request(lease, note()).events)))
    assert await world.facts(lease.run) == before


async def test_a_transition_from_an_unexpected_state_is_refused_and_leaves_nothing_behind(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    await world.store.log.append(world.ending(lease, new, CallCompleted, result()))
    before = await world.facts(lease.run)
    with pytest.raises(AlreadyAnswered):
        await world.start_call(lease, new)
    assert await world.facts(lease.run) == before


async def test_a_checkpoint_without_a_watermark_is_taken_through_its_own_append(world: World) -> None:
    lease = await world.running()
    appended = await world.append(lease, note(), note(), checkpoint=checkpoint("turn", summary="so far"))
    stored = (await world.facts(lease.run)).checkpoint
    assert stored is not None
    assert (stored.last_event_sequence, stored.epoch, stored.trigger) == (appended.last_sequence, lease.epoch, "turn")
    assert stored.state.summary == "so far"


async def test_a_checkpoint_keeps_the_watermark_it_names(world: World) -> None:
    lease = await world.running()
    await world.append(lease, note(), checkpoint=replace(checkpoint(), last_event_sequence=2))
    stored = (await world.facts(lease.run)).checkpoint
    assert stored is not None
    assert stored.last_event_sequence == 2


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

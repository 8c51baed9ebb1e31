"""The run queue: submitting once, claiming in order and to one holder, loading what a holder needs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.contract import (
    World,
    call,
    checkpoint,
    later,
    outcomes,
    result,
    stranger,
    turn_of,
)

from wakeful.domain.appends import RunChange
from wakeful.domain.errors import (
    Fenced,
    IdempotencyConflict,
    InvalidPayload,
    NotFound,
    SessionBusy,
    SessionClosed,
    SessionGone,
)
from wakeful.domain.events.runs import RunCheckpointed, RunQueued, UserMessageReceived
from wakeful.domain.events.turns import CallCompleted
from wakeful.domain.history import CONVERSATION_TYPES
from wakeful.domain.ids import invocation_id, new_id
from wakeful.domain.runs import Budget, Message
from wakeful.domain.scopes import Scope
from wakeful.domain.states import InvocationStatus, PriorityClass, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

INTERACTIVE, ASYNC, MAINTENANCE = PriorityClass


# Submitting


async def test_a_submitted_run_is_queued_behind_its_messages(world: World) -> None:
    session = await world.session()
    messages = (Message("be brief", role="system"), Message("hello"))
    submitted = await world.store.queue.submit(replace(world.submission(session), messages=messages))
    assert submitted.created
    facts = await world.facts(submitted.run)
    assert facts.run.status is RunStatus.QUEUED
    assert facts.types[1:] == ["user.message.received", "user.message.received", "run.queued"]
    first, second, queued = (event.payload for event in facts.events[1:])
    assert (first, second) == (
        UserMessageReceived(role="system", content="be brief"),
        UserMessageReceived(content="hello"),
    )
    assert isinstance(queued, RunQueued)
    assert (queued.agent, queued.agent_version, queued.priority, queued.messages) == ("helper", 1, 0, 2)
    assert {event.run_id for event in facts.events[1:]} == {submitted.run.run_id}


async def test_a_run_may_be_submitted_without_a_message(world: World) -> None:
    session = await world.session()
    submitted = await world.store.queue.submit(world.submission(session))
    assert (await world.facts(submitted.run)).types[1:] == ["run.queued"]


async def test_everything_submitted_is_stored_with_the_run(world: World) -> None:
    session = await world.session()
    submission = world.submission(
        session,
        "hello",
        agent="reviewer",
        agent_version=7,
        priority=ASYNC,
        scheduled_for=datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
        deadline=datetime(2032, 1, 1, tzinfo=UTC),
        budget=Budget(max_steps=None, max_tool_calls=3, max_tokens=10_000_000_000),
        metadata={"k": [1, {"é": None}]},
        trace_id="4bf92f3577b34da6",
    )
    submitted = await world.store.queue.submit(submission)
    run = (await world.facts(submitted.run)).run
    for name in ("agent", "agent_version", "priority", "scheduled_for", "deadline", "budget", "metadata", "trace_id"):
        assert getattr(run, name) == getattr(submission, name), name
    assert (run.ref, run.scope) == (submission.ref, world.scope)
    assert (run.step, run.tool_call_count, run.token_count, run.attempts) == (0, 0, 0, 0)
    assert (run.lease_owner, run.lease_epoch, run.lease_expirations, run.suspect) == (None, 0, 0, False)
    assert (run.parent, run.failure, run.attempt_failures, run.started_at) == (None, None, (), None)


async def test_a_child_run_knows_its_parent(world: World) -> None:
    lease = await world.running()
    call_id = invocation_id(lease.run.run_id, 1, 0)
    child = await world.queued(parent=lease.run, parent_invocation_id=call_id)
    run = (await world.facts(child)).run
    assert (run.parent, run.parent_invocation_id) == (lease.run, call_id)


@pytest.mark.spec("QUE-10")
@pytest.mark.parametrize("ended", [False, True])
async def test_the_same_key_and_body_return_the_same_run(world: World, ended: bool) -> None:
    session = await world.session()
    first = await world.store.queue.submit(world.submission(session, "hello", key="k", request_hash="h"))
    if ended:
        await world.end(await world.claim())
    before = await world.types(session.ref)
    again = await world.store.queue.submit(world.submission(session, "hello", key="k", request_hash="h"))
    assert (again.run, again.created) == (first.run, False)
    assert await world.types(session.ref) == before


@pytest.mark.spec("QUE-10")
async def test_a_key_past_its_time_stands_for_its_run_until_that_has_ended(world: World) -> None:
    session = await world.session()
    submission = world.submission(session, key="k", request_hash="h", key_kept=timedelta(0))
    first = await world.store.queue.submit(submission)
    again = await world.store.queue.submit(replace(submission, run_id=new_id()))
    assert (again.run, again.created) == (first.run, False)
    await world.end(await world.claim())
    fresh = await world.store.queue.submit(replace(submission, run_id=new_id(), request_hash="other"))
    assert fresh.created
    assert fresh.run != first.run


async def test_a_key_is_not_used_up_by_a_run_id_that_is_known_already(world: World) -> None:
    session = await world.session()
    submission = world.submission(session)
    first = await world.store.queue.submit(submission)
    again = await world.store.queue.submit(replace(submission, key="k", request_hash="h"))
    assert (again.run, again.created) == (first.run, False)
    await world.end(await world.claim())
    assert (await world.store.queue.submit(world.submission(session, key="k", request_hash="other"))).created


async def test_a_run_id_that_is_taken_elsewhere_is_refused(world: World) -> None:
    run = await world.queued()
    session = await world.session()
    with pytest.raises(NotFound):
        await world.store.queue.submit(world.submission(session, "hello", run_id=run.run_id))
    assert await world.types(session.ref) == ["session.created"]


@pytest.mark.spec("QUE-10")
async def test_a_key_finds_its_run_though_the_session_was_closed_since(world: World) -> None:
    session = await world.session()
    submission = world.submission(session, key="k")
    first = await world.store.queue.submit(submission)
    await world.end(await world.claim())
    await world.store.sessions.close(world.scope, session.session_id)
    assert (await world.store.queue.submit(replace(submission, run_id=new_id()))).run == first.run


@pytest.mark.spec("QUE-10")
async def test_the_same_key_with_another_body_is_a_conflict(world: World) -> None:
    session = await world.session()
    await world.store.queue.submit(world.submission(session, "hello", key="k", request_hash="h"))
    other = await world.session()
    with pytest.raises(IdempotencyConflict) as conflict:
        await world.store.queue.submit(world.submission(other, "bye", key="k", request_hash="i"))
    assert conflict.value.key == "k"
    assert await world.types(other.ref) == ["session.created"]


async def test_keys_of_other_owners_are_other_keys(world: World) -> None:
    mine = await world.queued(key="k", request_hash="h")
    neighbour = Scope(world.scope.tenant_id, new_id())
    runs = [
        await world.queued(scope=scope, key="k", request_hash="other")
        for scope in (neighbour, Scope(new_id(), world.scope.principal_id))
    ]
    assert len({mine.run_id, *(run.run_id for run in runs)}) == 3


async def test_submitting_the_same_run_id_again_finds_the_run(world: World) -> None:
    session = await world.session()
    submission = world.submission(session, "hello")
    first = await world.store.queue.submit(submission)
    again = await world.store.queue.submit(submission)
    assert (again.run, again.created) == (first.run, False)
    assert (await world.types(session.ref)).count("run.queued") == 1


async def test_one_key_gives_one_run_however_many_submit_it_at_once(world: World) -> None:
    sessions = [await world.session() for _ in range(6)]
    answers, raised = await outcomes(
        *(world.store.queue.submit(world.submission(session, key="k", request_hash="h")) for session in sessions)
    )
    assert raised == []
    assert len({answer.run for answer in answers}) == 1
    assert sorted(answer.created for answer in answers) == [False] * 5 + [True]


@pytest.mark.spec("QUE-9")
async def test_of_many_runs_submitted_to_one_session_at_once_one_is_taken(world: World) -> None:
    session = await world.session()
    answers, raised = await outcomes(*(world.store.queue.submit(world.submission(session, "x")) for _ in range(6)))
    assert len(answers) == 1
    assert [type(error) for error in raised] == [SessionBusy] * 5
    assert await world.types(session.ref) == ["session.created", "user.message.received", "run.queued"]


@pytest.mark.spec("QUE-9")
@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING_INPUT])
async def test_a_session_with_an_active_run_is_busy(world: World, status: RunStatus) -> None:
    if status is RunStatus.WAITING_INPUT:
        run, _ = await world.waiting(InvocationStatus.AWAITING_INPUT)
    else:
        run = (await world.running()).run if status is RunStatus.RUNNING else await world.queued()
    before = await world.facts(run)
    assert before.run.status is status
    with pytest.raises(SessionBusy):
        await world.store.queue.submit(world.submission(before.session, "again"))
    assert await world.facts(run) == before


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
async def test_a_session_is_free_again_when_its_run_has_ended(world: World, status: RunStatus) -> None:
    lease = await world.running()
    await world.end(lease, status)
    session = (await world.facts(lease.run)).session
    assert (await world.store.queue.submit(world.submission(session, "again"))).created


async def test_a_refused_submission_does_not_use_up_its_key(world: World) -> None:
    lease = await world.running()
    busy = (await world.facts(lease.run)).session
    with pytest.raises(SessionBusy):
        await world.store.queue.submit(world.submission(busy, "a", key="k", request_hash="a"))
    await world.end(lease)
    assert (await world.store.queue.submit(world.submission(busy, "b", key="k", request_hash="b"))).created


async def test_an_unknown_session_is_gone(world: World) -> None:
    session = replace(await world.session(), session_id=new_id())
    with pytest.raises(SessionGone):
        await world.store.queue.submit(world.submission(session, "hello", key="k"))
    assert (await world.queued(key="k")) is not None


@pytest.mark.spec("LOG-9")
async def test_another_principals_session_looks_unknown(world: World) -> None:
    session = await world.session()
    intruder = replace(session, scope=Scope(world.scope.tenant_id, new_id()))
    with pytest.raises(NotFound) as refused:
        await world.store.queue.submit(world.submission(intruder, "hello"))
    assert str(refused.value) == str(NotFound("session", session.session_id))
    assert await world.types(session.ref) == ["session.created"]


@pytest.mark.spec("LOG-9")
async def test_another_tenants_session_is_gone(world: World) -> None:
    session = await world.session()
    intruder = replace(session, scope=Scope(new_id(), world.scope.principal_id))
    with pytest.raises(SessionGone):
        await world.store.queue.submit(world.submission(intruder, "hello"))
    assert await world.types(session.ref) == ["session.created"]


async def test_a_closed_session_takes_no_run(world: World) -> None:
    session = await world.session()
    await world.store.sessions.close(world.scope, session.session_id)
    with pytest.raises(SessionClosed):
        await world.store.queue.submit(world.submission(session, "hello"))
    assert await world.types(session.ref) == ["session.created", "session.closed"]


async def test_a_message_that_the_log_cannot_hold_is_refused_and_leaves_nothing(world: World) -> None:
    session = await world.session()
    with pytest.raises(InvalidPayload):
        await world.store.queue.submit(world.submission(session, "fine", "a\x00b"))
    assert await world.types(session.ref) == ["session.created"]
    assert await world.store.runs.page(world.scope) == []


async def test_a_runs_metadata_does_not_change_with_the_submitters_value(world: World) -> None:
    metadata = {"list": [1]}
    run = await world.queued(metadata=metadata)
    metadata["list"].append(2)
    assert (await world.facts(run)).run.metadata == {"list": [1]}


# Claiming


@pytest.mark.spec("QUE-1")
async def test_a_claim_gives_its_holder_the_next_epoch_and_a_term(world: World) -> None:
    run = await world.queued(agent_version=4, priority=ASYNC)
    before = datetime.now(UTC)
    (claim,) = await world.claims(lease=timedelta(minutes=2))
    assert (claim.lease.run, claim.lease.owner, claim.lease.epoch) == (run, world.owner, 1)
    assert (claim.agent, claim.agent_version, claim.priority) == ("helper", 4, ASYNC)
    assert (claim.attempts, claim.suspect) == (1, False)
    stored = (await world.facts(run)).run
    assert (stored.status, stored.lease_owner, stored.lease_epoch) == (RunStatus.RUNNING, world.owner, 1)
    assert stored.attempts == 1
    assert stored.lease_expires_at is not None
    assert before + timedelta(seconds=119) < stored.lease_expires_at < datetime.now(UTC) + timedelta(seconds=121)


async def test_a_claim_writes_no_event(world: World) -> None:
    run = await world.queued()
    before = await world.types(run.session)
    await world.claim()
    assert await world.types(run.session) == before


async def test_a_claim_tells_how_long_the_run_was_due(world: World) -> None:
    await world.queued()
    await world.queued(scheduled_for=later(3600))
    first, second = await world.claims(now=later(3660))
    assert 3650 < first.waited_seconds < 3700
    assert 50 < second.waited_seconds < 100


@pytest.mark.spec("QUE-1")
async def test_runs_are_claimed_by_class_and_then_by_when_they_became_due(world: World) -> None:
    maintenance = await world.queued(priority=MAINTENANCE)
    late = await world.queued(priority=ASYNC, scheduled_for=later(100))
    early = await world.queued(priority=ASYNC, scheduled_for=later(50))
    first = await world.queued(priority=ASYNC)
    interactive = await world.queued()
    claims = await world.claims(now=later())
    assert [claim.lease.run for claim in claims] == [interactive, first, early, late, maintenance]


async def test_the_oldest_due_runs_are_taken_when_there_are_more_than_slots(world: World) -> None:
    runs = [await world.queued(scheduled_for=later(100 - number)) for number in range(5)]
    claims = await world.claims(capacity={INTERACTIVE: 2}, now=later())
    assert [claim.lease.run for claim in claims] == [runs[4], runs[3]]


@pytest.mark.spec("QUE-2")
async def test_each_class_is_given_its_own_capacity_and_no_more(world: World) -> None:
    for priority in (INTERACTIVE, ASYNC, MAINTENANCE):
        for _ in range(3):
            await world.queued(priority=priority)
    claims = await world.claims(capacity={INTERACTIVE: 1, ASYNC: 2, MAINTENANCE: 0})
    assert sorted(claim.priority for claim in claims) == [INTERACTIVE, ASYNC, ASYNC]


async def test_a_class_without_capacity_is_left_alone(world: World) -> None:
    await world.queued()
    assert await world.claims(capacity={ASYNC: 5}) == []
    assert await world.claims(capacity={}) == []


async def test_only_runs_of_served_agents_are_claimed(world: World) -> None:
    await world.queued(agent="other")
    mine = await world.queued(agent="helper")
    also = await world.queued(agent="reviewer")
    claims = await world.claims(agents=["reviewer", "helper"])
    assert {claim.lease.run for claim in claims} == {mine, also}
    assert await world.claims(agents=[]) == []


@pytest.mark.spec("QUE-8")
async def test_a_run_scheduled_for_later_is_claimed_then_and_not_before(world: World) -> None:
    run = await world.queued(scheduled_for=later(3600))
    assert await world.claims() == []
    assert await world.claims(now=later(3500)) == []
    assert (await world.claim(now=later(3700))).run == run


@pytest.mark.spec("QUE-6")
async def test_a_run_without_allowance_is_not_claimed(world: World) -> None:
    lease = await world.running()
    await world.crashed(lease)
    assert await world.claims(max_attempts=1, now=later()) == []
    assert len(await world.claims(max_attempts=2, now=later())) == 1


async def test_suspects_are_taken_only_as_long_as_their_own_slots_last(world: World) -> None:
    leases = [await world.running() for _ in range(3)]
    for lease in leases:
        await world.crashed(lease)
    fresh = await world.queued()
    first = await world.claims(suspects=0, now=later())
    assert [(claim.lease.run, claim.suspect) for claim in first] == [(fresh, False)]
    second = await world.claims(suspects=2, now=later())
    assert [claim.suspect for claim in second] == [True, True]
    third = await world.claims(suspects=2, now=later())
    assert [claim.suspect for claim in third] == [True]


async def test_suspects_share_the_slots_of_their_class(world: World) -> None:
    for _ in range(2):
        await world.crashed(await world.running())
    assert len(await world.claims(capacity={INTERACTIVE: 1}, suspects=8, now=later())) == 1


async def test_suspects_of_all_classes_together_are_limited(world: World) -> None:
    for priority in (INTERACTIVE, ASYNC, MAINTENANCE):
        await world.crashed(await world.running(priority=priority))
    assert len(await world.claims(suspects=2, now=later())) == 2


@pytest.mark.spec("QUE-1")
async def test_two_claimers_never_get_the_same_run(world: World) -> None:
    runs = {await world.queued() for _ in range(12)}
    answers, raised = await outcomes(*(world.claims(owner=new_id(), capacity={INTERACTIVE: 4}) for _ in range(5)))
    assert raised == []
    taken = [claim.lease.run for claims in answers for claim in claims]
    taken += [claim.lease.run for claim in await world.claims()]
    assert len(taken) == len(set(taken)) == 12
    assert set(taken) == runs


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.WAITING_INPUT, RunStatus.COMPLETED])
async def test_only_queued_runs_are_claimed(world: World, status: RunStatus) -> None:
    if status is RunStatus.WAITING_INPUT:
        await world.waiting(InvocationStatus.AWAITING_INPUT)
    else:
        lease = await world.running()
        if status is RunStatus.COMPLETED:
            await world.end(lease)
    assert await world.claims(owner=new_id(), now=later()) == []


async def test_every_claim_of_a_run_has_a_greater_epoch(world: World) -> None:
    lease = await world.running()
    await world.hand_back(lease)
    second = await world.claim()
    await world.crashed(second)
    third = await world.claim(now=later())
    assert [lease.epoch, second.epoch, third.epoch] == [1, 2, 3]


async def test_runs_of_every_tenant_are_claimed(world: World) -> None:
    runs = {await world.queued(scope=Scope(new_id(), new_id())) for _ in range(3)}
    assert {claim.lease.run for claim in await world.claims()} == runs


# Loading


async def test_a_holder_loads_run_checkpoint_calls_and_history_in_one_go(world: World) -> None:
    session = await world.session(metadata={"locale": "de"})
    await world.store.queue.submit(world.submission(session, "hello"))
    lease = await world.claim()
    calls = [call(lease.run, 1), call(lease.run, 0), call(lease.run, 0, step=2)]
    await world.turn(lease, *calls)
    appended = await world.append(lease, RunCheckpointed(trigger="turn"), checkpoint=checkpoint("turn", summary="s"))
    execution = await world.store.queue.load(lease)
    facts = await world.facts(lease.run)
    assert execution.run == facts.run
    assert execution.session_metadata == {"locale": "de"}
    assert execution.checkpoint == facts.checkpoint
    assert [(stored.step, stored.position) for stored in execution.invocations] == [(1, 0), (1, 1), (2, 0)]
    assert list(execution.history) == [event for event in facts.events if event.type in CONVERSATION_TYPES]
    assert execution.last_sequence == appended.last_sequence


async def test_the_history_holds_what_earlier_runs_of_the_session_said(world: World) -> None:
    lease = await world.running()
    await world.append(lease, turn_of(content="the first reply"))
    await world.end(lease)
    session = (await world.facts(lease.run)).session
    await world.store.queue.submit(world.submission(session, "more"))
    execution = await world.store.queue.load(await world.claim())
    types = [event.type for event in execution.history]
    assert types == [
        "session.created",
        "user.message.received",
        "assistant.message.created",
        "user.message.received",
    ]
    assert list(execution.invocations) == []


async def test_the_history_is_never_older_than_the_calls(world: World) -> None:
    lease = await world.running()
    new = call(lease.run)
    await world.turn(lease, new)
    await world.store.log.append(world.ending(lease, new, CallCompleted, result(data="done")))
    execution = await world.store.queue.load(lease)
    assert execution.invocations[0].status is InvocationStatus.COMPLETED
    assert execution.history[-1].type == "tool.call.completed"


async def test_a_run_whose_checkpoints_are_lost_loads_without_one(world: World) -> None:
    lease = await world.running()
    await world.store.checkpoints.write(lease, checkpoint())
    await world.store.checkpoints.drop(lease.run)
    assert (await world.store.queue.load(lease)).checkpoint is None


@pytest.mark.parametrize("wrong", ["owner", "epoch", "run", "tenant", "ended"])
async def test_loading_under_a_lease_that_is_not_current_is_fenced(world: World, wrong: str) -> None:
    lease = await world.running()
    if wrong == "ended":
        await world.end(lease)
    stale = {
        "owner": stranger(lease),
        "epoch": replace(lease, epoch=2),
        "run": replace(lease, run=replace(lease.run, run_id=new_id())),
        "tenant": replace(lease, run=replace(lease.run, tenant_id=new_id())),
        "ended": lease,
    }[wrong]
    with pytest.raises(Fenced):
        await world.store.queue.load(stale)


async def test_what_was_loaded_shares_nothing_with_the_store(world: World) -> None:
    session = await world.session(metadata={"a": [1]})
    await world.store.queue.submit(world.submission(session, "hello", metadata={"b": [2]}))
    lease = await world.claim()
    first = await world.store.queue.load(lease)
    first.session_metadata["a"].append(0)
    first.run.metadata["b"].append(0)
    again = await world.store.queue.load(lease)
    assert (again.session_metadata, again.run.metadata) == ({"a": [1]}, {"b": [2]})


async def test_a_run_is_loaded_whoever_else_writes_into_its_session(world: World) -> None:
    lease = await world.running()
    answers, raised = await outcomes(
        world.store.queue.load(lease),
        world.append(lease, RunCheckpointed(trigger="x"), run=RunChange(add_tokens=1)),
        world.store.queue.load(lease),
    )
    assert raised == []
    assert len(answers) == 3

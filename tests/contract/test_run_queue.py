"""The run queue: submitting once, whoever submits how often, and leaving nothing behind when refused."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.contract import (
    World,
    outcomes,
)

from wakeful.domain.errors import (
    IdempotencyConflict,
    InvalidPayload,
    NotFound,
    SessionBusy,
    SessionClosed,
    SessionGone,
)
from wakeful.domain.events.runs import RunQueued, UserMessageReceived
from wakeful.domain.ids import invocation_id, new_id
from wakeful.domain.runs import Budget, Message
from wakeful.domain.scopes import Scope
from wakeful.domain.states import InvocationStatus, PriorityClass, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

INTERACTIVE, ASYNC, MAINTENANCE = PriorityClass


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

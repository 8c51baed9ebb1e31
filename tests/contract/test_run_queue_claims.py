"""The run queue: claiming in order and to one holder, and loading what a holder needs."""

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
)
from wakeful.domain.events.runs import RunCheckpointed
from wakeful.domain.events.turns import CallCompleted
from wakeful.domain.history import CONVERSATION_TYPES
from wakeful.domain.ids import new_id
from wakeful.domain.scopes import Scope
from wakeful.domain.states import InvocationStatus, PriorityClass, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

INTERACTIVE, ASYNC, MAINTENANCE = PriorityClass


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


async def test_a_run_without_allowance_is_not_claimed_though_it_is_no_suspect_any_more(world: World) -> None:
    await world.crashed(await world.running(), max_attempts=9)
    lease = await world.claim(now=later())
    await world.turn(lease)
    await world.hand_back(lease)
    assert await world.claims(max_attempts=1, now=later()) == []
    (claim,) = await world.claims(max_attempts=2, now=later())
    assert not claim.suspect


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
    await world.saved(lease, checkpoint())
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

"""Leases: a heartbeat extends what it names, says what is lost, and finds what was never answered."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.contract import Store, World, later, stranger

from wakeful.domain.ids import new_id
from wakeful.domain.ports.leases import Heartbeat, LeaseKeeper
from wakeful.domain.runs import Lease
from wakeful.domain.scopes import Scope
from wakeful.domain.states import RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

LONG = timedelta(hours=2)


@pytest.fixture
def keeper(store: Store) -> Iterator[LeaseKeeper]:
    opened = store.lease_keeper()
    try:
        yield opened
    finally:
        opened.close()


def beat(keeper: LeaseKeeper, world: World, *leases: Lease) -> Heartbeat:
    return keeper.heartbeat(world.owner, leases, lease=LONG)


@pytest.mark.spec("QUE-4")
async def test_a_heartbeat_extends_the_lease_from_now_on(world: World, keeper: LeaseKeeper) -> None:
    lease = await world.running()
    before = datetime.now(UTC)
    answer = beat(keeper, world, lease)
    assert answer == Heartbeat(renewed=frozenset({lease.run.run_id}), lost=frozenset())
    expires_at = (await world.facts(lease.run)).run.lease_expires_at
    assert expires_at is not None
    assert before + LONG - timedelta(seconds=1) < expires_at < datetime.now(UTC) + LONG + timedelta(seconds=1)


async def test_a_renewed_lease_is_not_found_by_the_sweep_of_the_old_term(world: World, keeper: LeaseKeeper) -> None:
    lease = await world.running()
    beat(keeper, world, lease)
    assert await world.store.run_sweeps.expired_leases(10, now=later(3600)) == []


async def test_a_heartbeat_changes_nothing_but_the_term(world: World, keeper: LeaseKeeper) -> None:
    lease = await world.running()
    before = await world.facts(lease.run)
    beat(keeper, world, lease)
    after = await world.facts(lease.run)
    assert (
        replace(after.run, lease_expires_at=before.run.lease_expires_at, updated_at=before.run.updated_at) == before.run
    )
    assert after.events == before.events


async def test_leases_of_many_tenants_are_extended_together(world: World, keeper: LeaseKeeper) -> None:
    scopes = [Scope(new_id(), new_id()) for _ in range(4)]
    runs = [await world.queued(scope=scope) for scope in scopes]
    leases = [claim.lease for claim in await world.claims()]
    assert beat(keeper, world, *reversed(leases)).renewed == {run.run_id for run in runs}


async def test_only_the_leases_named_are_extended(world: World, keeper: LeaseKeeper) -> None:
    named, silent = await world.running(), await world.running()
    before = (await world.facts(silent.run)).run.lease_expires_at
    beat(keeper, world, named)
    assert (await world.facts(silent.run)).run.lease_expires_at == before


@pytest.mark.spec("QUE-4")
@pytest.mark.parametrize("cause", ["ended", "handed back", "swept", "unknown"])
async def test_a_lease_that_is_held_no_more_is_lost(world: World, keeper: LeaseKeeper, cause: str) -> None:
    lease = await world.running()
    if cause == "ended":
        await world.end(lease)
    elif cause == "handed back":
        await world.hand_back(lease)
    elif cause == "swept":
        await world.crashed(lease)
    else:
        lease = replace(lease, run=replace(lease.run, run_id=new_id()))
    answer = beat(keeper, world, lease)
    assert not answer.renewed
    assert answer.lost == {lease.run.run_id}


async def test_a_lease_taken_by_another_process_is_lost_and_not_extended(world: World, keeper: LeaseKeeper) -> None:
    lease = await world.running()
    await world.crashed(lease)
    await world.claim(owner=new_id(), now=later())
    before = (await world.facts(lease.run)).run
    assert beat(keeper, world, lease) == Heartbeat(renewed=frozenset(), lost=frozenset({lease.run.run_id}))
    assert (await world.facts(lease.run)).run == before


async def test_an_older_epoch_of_the_same_process_does_not_extend_the_newer_one(
    world: World, keeper: LeaseKeeper
) -> None:
    lease = await world.running()
    await world.hand_back(lease)
    await world.claim()
    before = (await world.facts(lease.run)).run.lease_expires_at
    assert lease.run.run_id not in beat(keeper, world, lease).renewed
    assert (await world.facts(lease.run)).run.lease_expires_at == before


async def test_an_expired_lease_that_nobody_swept_is_still_its_holders(world: World, keeper: LeaseKeeper) -> None:
    await world.queued()
    lease = await world.claim(lease=timedelta(seconds=-5))
    assert len(await world.store.run_sweeps.expired_leases(10)) == 1
    assert beat(keeper, world, lease).renewed == {lease.run.run_id}
    assert await world.store.run_sweeps.expired_leases(10) == []


async def test_a_claim_whose_answer_was_lost_is_adopted(world: World, keeper: LeaseKeeper) -> None:
    known = await world.running()
    run = await world.queued(agent_version=3)
    (lost,) = await world.claims()
    answer = beat(keeper, world, known)
    (adopted,) = answer.adopted
    assert adopted.lease == lost.lease
    assert (adopted.lease.run, adopted.agent, adopted.agent_version, adopted.attempts) == (run, "helper", 3, 1)
    assert beat(keeper, world, known, lost.lease).adopted == ()


async def test_an_adopted_run_is_listed_before_its_lease_is_vouched_for(world: World, keeper: LeaseKeeper) -> None:
    lease = await world.running()
    before = (await world.facts(lease.run)).run.lease_expires_at
    assert len(beat(keeper, world).adopted) == 1
    assert (await world.facts(lease.run)).run.lease_expires_at == before


async def test_runs_of_other_processes_are_not_adopted(world: World, keeper: LeaseKeeper) -> None:
    await world.queued()
    await world.claim(owner=new_id())
    assert beat(keeper, world) == Heartbeat(renewed=frozenset(), lost=frozenset())


async def test_a_heartbeat_tells_which_runs_were_asked_to_cancel(world: World, keeper: LeaseKeeper) -> None:
    asked, other = await world.running(), await world.running()
    await world.store.control.cancel(world.scope, asked.run.run_id)
    answer = beat(keeper, world, asked, other)
    assert answer.renewed == {asked.run.run_id, other.run.run_id}
    assert answer.cancel_requested == {asked.run.run_id}


async def test_heartbeats_come_from_a_thread_while_the_loop_appends(world: World, keeper: LeaseKeeper) -> None:
    lease = await world.running()

    def many() -> list[Heartbeat]:
        return [beat(keeper, world, lease) for _ in range(20)]

    async def turns() -> None:
        for step in range(1, 11):
            await world.turn(lease, step=step)

    beats, _ = await asyncio.gather(asyncio.to_thread(many), turns())
    assert all(answer.renewed == {lease.run.run_id} for answer in beats)
    assert (await world.facts(lease.run)).run.step == 10
    assert (await world.facts(lease.run)).run.status is RunStatus.RUNNING


async def test_a_keeper_may_be_closed_twice(store: Store) -> None:
    keeper = store.lease_keeper()
    keeper.close()
    keeper.close()


async def test_a_stranger_extends_nothing(world: World, keeper: LeaseKeeper) -> None:
    lease = await world.running()
    before = (await world.facts(lease.run)).run.lease_expires_at
    answer = keeper.heartbeat(new_id(), [stranger(lease)], lease=LONG)
    assert answer == Heartbeat(renewed=frozenset(), lost=frozenset({lease.run.run_id}))
    assert (await world.facts(lease.run)).run.lease_expires_at == before


async def test_waiting_for_the_next_heartbeat_ends_when_it_is_rung(world: World, keeper: LeaseKeeper) -> None:
    beat(keeper, world)
    read, write = os.pipe()
    try:
        assert not keeper.wait(0.0, read)
        waiting = asyncio.create_task(asyncio.to_thread(keeper.wait, 60.0, read))
        os.write(write, b"!")
        async with asyncio.timeout(20):
            assert not await waiting
    finally:
        os.close(read)
        os.close(write)

"""Housekeeping: keys live as long as promised, and every sweeper's last look is known."""

from datetime import timedelta
from typing import Any

import pytest
from support.contract import World, later

from wakeful.domain.ids import new_id
from wakeful.domain.scopes import Scope

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]


async def ended_with_key(world: World, key: str, **fields: Any) -> None:
    await world.queued(key=key, **fields)
    await world.end(await world.claim())


@pytest.mark.spec("QUE-10")
async def test_a_key_of_an_ended_run_goes_when_its_time_is_over_and_not_before(world: World) -> None:
    await ended_with_key(world, "k", key_kept=timedelta(hours=1))
    expire = world.store.housekeeping.expire_keys
    assert await expire(10) == 0
    assert await expire(10, now=later(3500)) == 0
    assert await expire(10, now=later(3700)) == 1
    assert await expire(10, now=later(3700)) == 0


@pytest.mark.spec("QUE-10")
async def test_a_key_that_went_starts_a_new_run(world: World) -> None:
    session = await world.session()
    first = await world.store.queue.submit(world.submission(session, key="k", request_hash="a"))
    await world.end(await world.claim())
    await world.store.housekeeping.expire_keys(10, now=later(1_000_000))
    second = await world.store.queue.submit(world.submission(session, key="k", request_hash="b"))
    assert second.created
    assert second.run != first.run


async def test_a_key_is_kept_for_as_long_as_its_run_lives(world: World) -> None:
    session = await world.session()
    first = await world.store.queue.submit(world.submission(session, key="k"))
    assert await world.store.housekeeping.expire_keys(10, now=later(1_000_000)) == 0
    assert (await world.store.queue.submit(world.submission(session, key="k"))).run == first.run


async def test_keys_go_up_to_the_limit_over_all_tenants(world: World) -> None:
    for number in range(3):
        world.scope = Scope(new_id(), new_id())
        await ended_with_key(world, f"k{number}")
    assert await world.store.housekeeping.expire_keys(2, now=later(1_000_000)) == 2
    assert await world.store.housekeeping.expire_keys(2, now=later(1_000_000)) == 1


async def test_a_sweep_that_never_ran_has_no_last_tick(world: World) -> None:
    assert await world.store.housekeeping.last_tick("leases") is None


async def test_the_last_tick_of_any_sweeper_of_a_kind_counts(world: World) -> None:
    for _ in range(3):
        await world.store.housekeeping.tick("leases", new_id())
    age = await world.store.housekeeping.last_tick("leases")
    assert age is not None
    assert timedelta(0) <= age < timedelta(seconds=30)
    assert await world.store.housekeeping.last_tick("children") is None

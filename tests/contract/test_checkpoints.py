"""Checkpoints: written under the lease, read as written, lost without harm."""

from dataclasses import replace

import pytest
from support.contract import World, checkpoint, stranger

from wakeful.domain.checkpoints import BudgetState, CheckpointState, NewCheckpoint, PendingBatch
from wakeful.domain.errors import Fenced, InvalidPayload
from wakeful.domain.ids import new_id

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]


async def test_a_run_has_no_checkpoint_at_first(world: World) -> None:
    assert await world.store.checkpoints.latest(await world.queued()) is None


async def test_checkpoints_count_from_one_and_the_latest_is_read(world: World) -> None:
    lease = await world.running()
    numbers = [await world.store.checkpoints.write(lease, checkpoint(name)) for name in ("a", "b", "c")]
    assert numbers == [1, 2, 3]
    latest = await world.store.checkpoints.latest(lease.run)
    assert latest is not None
    assert (latest.number, latest.trigger, latest.run_id, latest.epoch) == (3, "c", lease.run.run_id, lease.epoch)


async def test_a_checkpoint_is_read_as_it_was_written(world: World) -> None:
    lease = await world.running()
    state = CheckpointState(
        budget=BudgetState(step=3, tool_call_count=4, token_count=10_000_000_000, counted_through_step=2),
        pending=PendingBatch(step=3, positions=[0, 2]),
        continuation={"blob": "ZW5jcnlwdGVk", "n": [1, None, 2.5]},
        provider="scripted",
        summary="bis hierher: 日本",
        summary_through=17,
    )
    await world.store.checkpoints.write(lease, NewCheckpoint("turn", state, last_event_sequence=3))
    latest = await world.store.checkpoints.latest(lease.run)
    assert latest is not None
    assert (latest.state, latest.last_event_sequence) == (state, 3)
    assert (latest.kind, latest.base_number) == ("full", None)


async def test_a_checkpoint_written_by_a_superseded_holder_is_fenced(world: World) -> None:
    lease = await world.running()
    await world.store.checkpoints.write(lease, checkpoint("kept"))
    for stale in (stranger(lease), replace(lease, epoch=lease.epoch + 1)):
        with pytest.raises(Fenced):
            await world.store.checkpoints.write(stale, checkpoint("stale"))
    await world.end(lease)
    with pytest.raises(Fenced):
        await world.store.checkpoints.write(lease, checkpoint("late"))
    latest = await world.store.checkpoints.latest(lease.run)
    assert latest is not None
    assert latest.trigger == "kept"


async def test_a_state_that_cannot_be_stored_is_refused(world: World) -> None:
    lease = await world.running()
    with pytest.raises(InvalidPayload):
        await world.store.checkpoints.write(lease, checkpoint(summary="a\x00b"))
    assert await world.store.checkpoints.latest(lease.run) is None


async def test_dropping_without_a_number_drops_all_of_the_run_and_no_others(world: World) -> None:
    lease, other = await world.running(), await world.running()
    for _ in range(3):
        await world.store.checkpoints.write(lease, checkpoint())
    await world.store.checkpoints.write(other, checkpoint())
    assert await world.store.checkpoints.drop(lease.run) == 3
    assert await world.store.checkpoints.latest(lease.run) is None
    assert await world.store.checkpoints.latest(other.run) is not None
    assert await world.store.checkpoints.drop(lease.run) == 0


async def test_dropping_the_newest_uncovers_the_one_before(world: World) -> None:
    lease = await world.running()
    for name in ("a", "b", "c", "d"):
        await world.store.checkpoints.write(lease, checkpoint(name))
    assert await world.store.checkpoints.drop(lease.run, newest=2) == 2
    latest = await world.store.checkpoints.latest(lease.run)
    assert latest is not None
    assert latest.trigger == "b"
    assert await world.store.checkpoints.drop(lease.run, newest=5) == 2


async def test_dropping_none_of_the_newest_drops_nothing(world: World) -> None:
    lease = await world.running()
    await world.store.checkpoints.write(lease, checkpoint())
    assert await world.store.checkpoints.drop(lease.run, newest=0) == 0
    assert await world.store.checkpoints.latest(lease.run) is not None


async def test_losing_checkpoints_changes_neither_run_nor_log(world: World) -> None:
    lease = await world.running()
    await world.store.checkpoints.write(lease, checkpoint())
    before = await world.facts(lease.run)
    await world.store.checkpoints.drop(lease.run)
    assert await world.facts(lease.run) == replace(before, checkpoint=None)


@pytest.mark.spec("LOG-9")
async def test_another_tenant_sees_and_drops_nothing(world: World) -> None:
    lease = await world.running()
    await world.store.checkpoints.write(lease, checkpoint())
    foreign = replace(lease.run, tenant_id=new_id())
    assert await world.store.checkpoints.latest(foreign) is None
    assert await world.store.checkpoints.drop(foreign) == 0
    assert await world.store.checkpoints.latest(lease.run) is not None

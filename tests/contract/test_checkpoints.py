"""Checkpoints: written under the lease, read as written, lost without harm."""

from dataclasses import replace

import pytest
from support.contract import World, checkpoint, note, stranger

from wakeful.domain.checkpoints import (
    Base,
    BudgetState,
    Checkpoint,
    CheckpointState,
    NewCheckpoint,
    PendingBatch,
)
from wakeful.domain.errors import Fenced, InvalidPayload
from wakeful.domain.ids import new_id
from wakeful.domain.runs import Lease

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]


async def chain(world: World, lease: Lease, *triggers: str) -> list[int]:
    """A full checkpoint and deltas on it, each of them a step further; their numbers."""
    numbers: list[int] = []
    base = None
    for step, trigger in enumerate(triggers):
        new = NewCheckpoint(trigger, CheckpointState(budget=BudgetState(step=step)), base=base)
        number = await world.saved(lease, new)
        assert number is not None
        numbers.append(number)
        base = Base(number, new.state)
    return numbers


async def latest(world: World, lease: Lease) -> Checkpoint:
    found = await world.store.checkpoints.latest(lease.run)
    assert found is not None
    return found


async def test_a_run_has_no_checkpoint_at_first(world: World) -> None:
    assert await world.store.checkpoints.latest(await world.queued()) is None


async def test_checkpoints_count_from_one_and_the_latest_is_read(world: World) -> None:
    lease = await world.running()
    assert await chain(world, lease, "a", "b", "c") == [1, 2, 3]
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
    await world.saved(lease, NewCheckpoint("turn", state, last_event_sequence=3))
    latest = await world.store.checkpoints.latest(lease.run)
    assert latest is not None
    assert (latest.state, latest.last_event_sequence) == (state, 3)
    assert (latest.kind, latest.base_number) == ("full", None)


async def test_a_checkpoint_written_by_a_superseded_holder_is_fenced(world: World) -> None:
    lease = await world.running()
    await world.saved(lease, checkpoint("kept"))
    for stale in (stranger(lease), replace(lease, epoch=lease.epoch + 1)):
        with pytest.raises(Fenced):
            await world.saved(stale, checkpoint("stale"))
    await world.end(lease)
    with pytest.raises(Fenced):
        await world.saved(lease, checkpoint("late"))
    latest = await world.store.checkpoints.latest(lease.run)
    assert latest is not None
    assert latest.trigger == "kept"


async def test_a_state_that_cannot_be_stored_is_refused(world: World) -> None:
    lease = await world.running()
    with pytest.raises(InvalidPayload):
        await world.saved(lease, checkpoint(summary="a\x00b"))
    assert await world.store.checkpoints.latest(lease.run) is None


async def test_dropping_without_a_number_drops_all_of_the_run_and_no_others(world: World) -> None:
    lease, other = await world.running(), await world.running()
    await chain(world, lease, "a", "b", "c")
    await world.saved(other, checkpoint())
    assert await world.store.checkpoints.drop(lease.run) == 3
    assert await world.store.checkpoints.latest(lease.run) is None
    assert await world.store.checkpoints.latest(other.run) is not None
    assert await world.store.checkpoints.drop(lease.run) == 0


async def test_dropping_the_newest_uncovers_the_one_before(world: World) -> None:
    lease = await world.running()
    await chain(world, lease, "a", "b", "c", "d")
    assert await world.store.checkpoints.drop(lease.run, newest=2) == 2
    latest = await world.store.checkpoints.latest(lease.run)
    assert latest is not None
    assert latest.trigger == "b"
    assert await world.store.checkpoints.drop(lease.run, newest=5) == 2


async def test_dropping_none_of_the_newest_drops_nothing(world: World) -> None:
    lease = await world.running()
    await world.saved(lease, checkpoint())
    assert await world.store.checkpoints.drop(lease.run, newest=0) == 0
    assert await world.store.checkpoints.latest(lease.run) is not None


async def test_losing_checkpoints_changes_neither_run_nor_log(world: World) -> None:
    lease = await world.running()
    await world.saved(lease, checkpoint())
    before = await world.facts(lease.run)
    await world.store.checkpoints.drop(lease.run)
    assert await world.facts(lease.run) == replace(before, checkpoint=None)


@pytest.mark.spec("LOG-9")
async def test_another_tenant_sees_and_drops_nothing(world: World) -> None:
    lease = await world.running()
    await world.saved(lease, checkpoint())
    foreign = replace(lease.run, tenant_id=new_id())
    assert await world.store.checkpoints.latest(foreign) is None
    assert await world.store.checkpoints.drop(foreign) == 0
    assert await world.store.checkpoints.latest(lease.run) is not None


STATES = (
    CheckpointState(budget=BudgetState(step=1), pending=PendingBatch(step=1, positions=[0, 1]), summary="so far"),
    CheckpointState(budget=BudgetState(step=1, tool_call_count=2, counted_through_step=1), summary="so far"),
    CheckpointState(budget=BudgetState(step=2, token_count=7), continuation={"blob": "x"}, provider="scripted"),
    CheckpointState(),
)


@pytest.mark.spec("CKP-1")
async def test_every_checkpoint_is_rebuilt_through_its_deltas_as_it_was_taken(world: World) -> None:
    lease = await world.running()
    base = None
    for number, state in enumerate(STATES, start=1):
        new = NewCheckpoint("turn", state, base=base)
        assert await world.saved(lease, new) == number
        found = await latest(world, lease)
        assert (found.state, found.deltas, found.base_number) == (state, number - 1, number - 1 or None)
        base = Base(number, state)


@pytest.mark.spec("CKP-1")
async def test_a_delta_whose_base_is_gone_is_written_full(world: World) -> None:
    lease = await world.running()
    await chain(world, lease, "a", "b", "c")
    await world.store.checkpoints.drop(lease.run, newest=1)
    state = CheckpointState(summary="all there is", budget=BudgetState(step=9))
    await world.saved(lease, NewCheckpoint("d", state, base=Base(3, replace_step(state, 8))))
    found = await latest(world, lease)
    assert (found.kind, found.state) == ("full", state)


@pytest.mark.spec("CKP-1")
async def test_a_delta_on_one_that_others_were_written_after_is_written_full(world: World) -> None:
    """What it says may not hold for the newest: its chain and theirs are not one."""
    lease = await world.running()
    await chain(world, lease, "a", "b", "c")
    state = CheckpointState(summary="all there is", budget=BudgetState(step=9))
    assert await world.saved(lease, NewCheckpoint("d", state, base=Base(2, replace_step(state, 8)))) == 4
    found = await latest(world, lease)
    assert (found.kind, found.state) == ("full", state)


@pytest.mark.spec("CKP-3")
async def test_a_full_checkpoint_removes_every_older_one_of_its_run_and_no_others(world: World) -> None:
    lease, other = await world.running(), await world.running()
    await chain(world, lease, "a", "b", "c")
    await chain(world, other, "a", "b")
    assert await world.saved(lease, checkpoint("full")) == 4
    assert await world.store.checkpoints.drop(lease.run) == 1
    assert await world.store.checkpoints.drop(other.run) == 2


@pytest.mark.spec("CKP-3")
async def test_a_full_checkpoint_that_is_refused_removes_nothing(world: World) -> None:
    lease = await world.running()
    await chain(world, lease, "a", "b")
    with pytest.raises(Fenced):
        await world.saved(stranger(lease), checkpoint("late"))
    assert (await latest(world, lease)).trigger == "b"
    assert await world.store.checkpoints.drop(lease.run) == 2


@pytest.mark.spec("CKP-1")
async def test_an_append_that_is_redone_writes_its_checkpoint_once(world: World) -> None:
    lease = await world.running()
    append = world.request(lease, note(), checkpoint=checkpoint("once"))
    first, again = await world.store.log.append(append), await world.store.log.append(append)
    assert (first.checkpoint, again.checkpoint) == (1, None)
    assert await world.store.checkpoints.drop(lease.run) == 1


def replace_step(state: CheckpointState, step: int) -> CheckpointState:
    return state.model_copy(update={"budget": BudgetState(step=step)})

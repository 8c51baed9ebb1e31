"""A full checkpoint removes the older ones with its own append: a resume finds the old chain or the new one."""

import asyncio

import pytest
from support.contract import World, checkpoint
from support.hot_paths import HELD, Admin

from wakeful.domain.checkpoints import Base, CheckpointState, NewCheckpoint
from wakeful.domain.errors import Fenced, OutcomeUnknown
from wakeful.domain.events.runs import RunCheckpointed
from wakeful.domain.ids import new_id
from wakeful.domain.runs import Lease
from wakeful.persistence.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.spec("CKP-3"), pytest.mark.gate("checkpoint_dispensable")]

# Waits where everything is written and nothing is committed: behind the removal, unlike the trigger `hold`.
HOLD_COMMIT = f"""
CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON wakeful.events DEFERRABLE INITIALLY DEFERRED
   FOR EACH ROW WHEN (NEW.payload ->> 'trigger' = '{HELD} at commit') EXECUTE FUNCTION public.hold_event()
"""
AT_COMMIT = RunCheckpointed(trigger=f"{HELD} at commit")
REST = "SELECT number, kind FROM wakeful.run_checkpoints ORDER BY number"


async def chained(world: World) -> Lease:
    """A run with a full checkpoint and two deltas."""
    lease = await world.running()
    base = None
    for text in ("a", "b", "c"):
        new = NewCheckpoint(text, CheckpointState(summary=text), base=base)
        number = await world.saved(lease, new)
        assert number is not None
        base = Base(number, new.state)
    return lease


async def summary(store: PostgresStore, lease: Lease) -> str | None:
    """What a resume would find."""
    found = (await store.queue.load(lease)).checkpoint
    return found.state.summary if found else None


async def test_until_the_new_one_is_committed_a_resume_finds_the_old_chain_whole(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    lease = await chained(world)
    async with admin.holding():
        await admin.fetch(HOLD_COMMIT)
        written = asyncio.create_task(world.append(lease, AT_COMMIT, checkpoint=checkpoint("full", summary="new")))
        await admin.waiting(1)
        assert await summary(store, lease) == "c"
    await written
    assert await summary(store, lease) == "new"
    assert await admin.fetch(REST) == [(4, "full")]


async def test_a_removal_whose_transaction_dies_has_removed_nothing(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    lease = await chained(world)
    async with admin.holding():
        await admin.fetch(HOLD_COMMIT)
        written = asyncio.create_task(world.append(lease, AT_COMMIT, checkpoint=checkpoint("full", summary="new")))
        (pid,) = await admin.waiting(1)
        await admin.fetch("SELECT pg_terminate_backend(%s)", [pid])
        with pytest.raises(OutcomeUnknown):
            await written
    assert await admin.fetch(REST) == [(1, "full"), (2, "delta"), (3, "delta")]
    assert await summary(store, lease) == "c"


async def test_a_holder_that_lost_its_run_while_it_waited_removes_nothing(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    """It decided to write a full checkpoint under its lease; by the time it may, another epoch resumes from the old."""
    lease = await chained(world)
    async with admin.connection.transaction():
        await admin.fetch("SELECT FROM wakeful.sessions FOR UPDATE")
        stale = asyncio.create_task(world.saved(lease, checkpoint("full", summary="stale")))
        await admin.waiting(1)
        await admin.fetch("UPDATE wakeful.runs SET lease_epoch = lease_epoch + 1, lease_owner = %s", [new_id()])
    with pytest.raises(Fenced):
        await stale
    assert await admin.fetch(REST) == [(1, "full"), (2, "delta"), (3, "delta")]
    found = await store.checkpoints.latest(lease.run)
    assert found is not None
    assert found.state.summary == "c"


async def test_losing_checkpoints_waits_for_an_append_that_removes_them(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    """Both delete several rows; without one order of locks they would deadlock."""
    lease = await chained(world)
    async with admin.holding():
        await admin.fetch(HOLD_COMMIT)
        written = asyncio.create_task(world.append(lease, AT_COMMIT, checkpoint=checkpoint("full", summary="new")))
        await admin.waiting(1)
        dropped = asyncio.create_task(store.checkpoints.drop(lease.run))
        await admin.waiting(2)
    await written
    assert await dropped == 0
    assert await summary(store, lease) == "new"

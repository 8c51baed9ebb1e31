"""Whoever ends a run, each unanswered call has exactly one result in the same transaction (semantics: run states)."""

from collections.abc import Awaitable, Callable
from itertools import product
from uuid import UUID, uuid4

import pytest
from support.acting import World

from wakeful.domain.closing import OPEN_CALLS
from wakeful.domain.ports.sweeps import ExpiredLease
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import TERMINAL_CALLS, IdempotencyClass, InvocationStatus, RunStatus

pytestmark = pytest.mark.anyio

ADA = Scope(uuid4(), uuid4())
ALL = list(product(InvocationStatus, IdempotencyClass))

End = Callable[[World], Awaitable[tuple[RunRef, Callable[[], Awaitable[object]]]]]


async def cancelled(world: World, status: RunStatus) -> tuple[RunRef, Callable[[], Awaitable[object]]]:
    run = await world.run(status, scope=ADA)
    return run, lambda: world.control.cancel(ADA, run.run_id)


async def reclaimed(world: World, **columns: object) -> tuple[RunRef, Callable[[], Awaitable[object]]]:
    run, expired = await world.expired(scope=ADA, **columns)
    assert isinstance(expired, ExpiredLease)
    return run, lambda: world.sweeps.reclaim(expired)


async def hopeless(
    world: World, status: RunStatus, **columns: object
) -> tuple[RunRef, Callable[[], Awaitable[object]]]:
    run = await world.run(status, scope=ADA, **columns)
    return run, lambda: world.sweeps.fail_hopeless(run)


ENDS: dict[str, End] = {
    "cancel while queued": lambda world: cancelled(world, RunStatus.QUEUED),
    "cancel while waiting": lambda world: cancelled(world, RunStatus.WAITING_APPROVAL),
    "third expired lease": lambda world: reclaimed(world, lease_expirations=2),
    "expired lease of a run asked to end": lambda world: reclaimed(world, cancel_requested_at="now"),
    "allowance used up": lambda world: hopeless(world, RunStatus.QUEUED, lease_expirations=3),
    "deadline while waiting": lambda world: hopeless(world, RunStatus.WAITING_CHILD, deadline_at="yesterday"),
}


async def calls_in_every_state(world: World, run: RunRef) -> dict[UUID, tuple[InvocationStatus, IdempotencyClass]]:
    return {
        await world.call(run, status, step=2, position=n, kind=kind): (status, kind)
        for n, (status, kind) in enumerate(ALL)
    }


def expected(status: InvocationStatus, kind: IdempotencyClass) -> InvocationStatus:
    unknowable = (IdempotencyClass.NON_IDEMPOTENT, IdempotencyClass.CONDITIONALLY_IDEMPOTENT)
    if status in TERMINAL_CALLS:
        return status
    if status is InvocationStatus.RUNNING and kind in unknowable:
        return InvocationStatus.UNCERTAIN
    return InvocationStatus.CANCELLED


@pytest.mark.parametrize("how", ENDS)
async def test_the_end_and_the_results_stand_together(world: World, how: str) -> None:
    run, end = await ENDS[how](world)
    calls = await calls_in_every_state(world, run)
    await end()
    assert (await world.status(run)).terminal
    assert await world.calls(run) == {call: expected(*given) for call, given in calls.items()}
    assert await world.results(run) == {
        call: [expected(*given).value] if given[0] in OPEN_CALLS else [] for call, given in calls.items()
    }
    events = await world.events(run)
    assert len({event["created_at"] for event in events}) == 1
    assert events[-1]["type"] in ("run.failed", "run.cancelled")


async def test_nothing_stands_when_one_result_cannot_be_written(world: World) -> None:
    """The results and the end are one transaction: a result that is refused takes the end with it."""
    run, end = await cancelled(world, RunStatus.QUEUED)
    call = await world.call(run, InvocationStatus.REQUESTED)
    await world.admin.execute(
        "ALTER TABLE wakeful.tool_invocations ADD CONSTRAINT broken CHECK (status <> 'CANCELLED') NOT VALID"
    )
    with pytest.raises(Exception, match="broken"):
        await end()
    assert await world.status(run) is RunStatus.QUEUED
    assert (await world.calls(run))[call] is InvocationStatus.REQUESTED
    assert await world.events(run) == []

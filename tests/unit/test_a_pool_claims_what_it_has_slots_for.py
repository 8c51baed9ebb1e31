"""The pool: claiming, polling, hints, slots."""

import threading
from datetime import timedelta

import pytest
from support.pools import Executions, make_pool, memory, read, running, status, submit, until

from wakeful.actors.slots import Slots
from wakeful.domain.errors import OutcomeUnknown, Unavailable
from wakeful.domain.runs import Claim
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio

NEVER = timedelta(hours=1)
INTERACTIVE, ASYNC, MAINTENANCE = PriorityClass


async def test_a_run_is_executed_without_any_hint() -> None:
    store = memory()
    executions = Executions(store)
    async with running(make_pool(store, executions)):
        run = await submit(store)
        await until(lambda: executions.runs == [run])


async def test_a_hint_from_another_thread_makes_the_pool_look_at_once() -> None:
    store = memory()
    executions = Executions(store)
    async with running(make_pool(store, executions, poll=NEVER)) as pool:
        await until(lambda: not pool.running)
        run = await submit(store, priority=ASYNC)
        threading.Thread(target=pool.hint, args=(ASYNC,)).start()
        await until(lambda: executions.runs == [run])


async def test_what_is_queued_before_the_start_is_executed() -> None:
    store = memory()
    executions = Executions(store)
    runs = {await submit(store, priority=priority) for priority in PriorityClass}
    async with running(make_pool(store, executions, poll=NEVER)):
        await until(lambda: set(executions.runs) == runs)


async def test_a_freed_slot_claims_again_at_once() -> None:
    store = memory()
    executions = Executions(store)
    runs = [await submit(store) for _ in range(50)]
    async with running(make_pool(store, executions, poll=NEVER, slots=Slots(2))):
        await until(lambda: len(executions.runs) == len(runs))


async def test_no_more_runs_are_held_than_there_are_slots() -> None:
    store = memory()
    executions = Executions(store, stay=True)
    for _ in range(9):
        await submit(store)
    async with running(make_pool(store, executions, slots=Slots(3))) as pool:
        await until(lambda: pool.running == 3)
        executions.let_go.set()
        await until(lambda: len(executions.started) == 9)


@pytest.mark.spec("QUE-2")
async def test_a_flood_in_one_class_cannot_starve_another() -> None:
    store = memory()
    executions = Executions(store, stay=True)
    for _ in range(20):
        await submit(store, priority=MAINTENANCE)
    slots = Slots(6, floors={INTERACTIVE: 2, ASYNC: 1, MAINTENANCE: 1})
    async with running(make_pool(store, executions, slots=slots)) as pool:
        await until(lambda: pool.running == 3)
        urgent = [await submit(store), await submit(store), await submit(store, priority=ASYNC)]
        await until(lambda: set(urgent) <= set(executions.runs))


async def test_shared_slots_reach_the_less_urgent_class_when_the_urgent_one_is_empty() -> None:
    store = memory()
    executions = Executions(store, stay=True)
    for _ in range(4):
        await submit(store, priority=MAINTENANCE)
    async with running(make_pool(store, executions, poll=NEVER, slots=Slots(4))) as pool:
        await until(lambda: pool.running == 4)


async def test_only_runs_of_served_classes_are_claimed() -> None:
    store = memory()
    executions = Executions(store)
    other = await submit(store, priority=MAINTENANCE)
    async with running(make_pool(store, executions, slots=Slots(4, classes=(INTERACTIVE,)))) as pool:
        pool.hint(MAINTENANCE)
        run = await submit(store)
        await until(lambda: executions.runs == [run])
    assert await status(store, other) is RunStatus.QUEUED


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError(), TimeoutError()])
async def test_an_execution_that_raises_anything_leaves_the_pool_and_the_neighbours_alone(error: BaseException) -> None:
    store = memory()
    executions = Executions(store)
    bad = await submit(store)

    async def break_(_holding: Holding) -> Ending:
        raise error

    executions.bodies[bad.run_id] = break_
    async with running(make_pool(store, executions, slots=Slots(1))):
        good = await submit(store)
        await until(lambda: executions.runs == [bad, good])
        crashed = await read(store, bad)
    assert (crashed.status, crashed.lease_expirations) == (RunStatus.QUEUED, 1)
    assert [failure["reason"] for failure in crashed.attempt_failures] == [f"raised {type(error).__name__}"]


async def test_an_unreachable_database_is_waited_for() -> None:
    store = memory()
    executions = Executions(store)
    claim, refusals = store.queue.claim, 3

    async def unreachable(*args: object, **options: object) -> list[Claim]:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise Unavailable("away")
        return await claim(*args, **options)  # type: ignore[arg-type]

    store.queue.claim = unreachable  # type: ignore[method-assign]
    run = await submit(store)
    async with running(make_pool(store, executions)):
        await until(lambda: executions.runs == [run])


async def test_a_claim_whose_answer_was_lost_is_adopted_by_the_heartbeat_and_executed_once() -> None:
    store = memory()
    executions = Executions(store)
    claim, lost = store.queue.claim, False

    async def losing(*args: object, **options: object) -> list[Claim]:
        nonlocal lost
        claims = await claim(*args, **options)  # type: ignore[arg-type]
        if claims and not lost:
            lost = True
            raise OutcomeUnknown("the connection ended")
        return claims

    store.queue.claim = losing  # type: ignore[method-assign]
    run = await submit(store)
    async with running(make_pool(store, executions, heartbeat=timedelta(milliseconds=30))) as pool:
        await until(lambda: executions.runs == [run])
        await until(lambda: not pool.running)
        assert executions.of(run).may_start()
    assert executions.runs == [run]
    assert await status(store, run) is RunStatus.COMPLETED


async def test_starting_twice_and_stopping_twice_or_never_started_change_nothing() -> None:
    store = memory()
    pool = make_pool(store, Executions(store))
    await pool.stop()
    await pool.start()
    await pool.start()
    await pool.stop()
    await pool.stop()
    pool.hint(INTERACTIVE)

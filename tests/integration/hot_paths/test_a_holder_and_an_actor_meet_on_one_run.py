"""Every edge a holder takes beside every edge somebody else takes, on two connections, in both orders.

Both wait for the session's row; whoever came first gets it first, and the other judges what it finds then. Whatever
they decide, the run is in a state that the table of run states knows, no answer is lost and no call has two results.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from support.contract import Facts, World, call, later, note, result
from support.database import Database

from wakeful.domain.appends import RunChange
from wakeful.domain.closing import closing
from wakeful.domain.content import Failure
from wakeful.domain.errors import WakefulError
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import RunCancelled, RunCancelRequested, RunCompleted, RunFailed
from wakeful.domain.events.turns import CallApproved, CallEnded
from wakeful.domain.invocations import NewInvocation
from wakeful.domain.ports.sweeps import ExpiredLease, ExpiredWait
from wakeful.domain.runs import Lease
from wakeful.domain.states import AWAITING, WAITING, InvocationStatus, RunStatus, waiting_status
from wakeful.persistence.memory.artifacts import MemoryArtifactBytes
from wakeful.persistence.store import Addresses, PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.spec("LOG-3")]

SOON = timedelta(minutes=1)
TERMINAL = {"run.completed", "run.failed", "run.cancelled"}
INPUT, APPROVAL, CHILD = (
    InvocationStatus.AWAITING_INPUT,
    InvocationStatus.AWAITING_APPROVAL,
    InvocationStatus.AWAITING_CHILD,
)
_BLOCKED = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()
"""


@dataclass
class Meeting:
    """A RUNNING run with one open call, and the two who act on it."""

    world: World
    lease: Lease
    open: NewInvocation

    # What the holder does.

    async def wait(self) -> object:
        return await self.world.park(self.lease, waiting_status(frozenset({self.open.status})) or RunStatus.QUEUED)

    async def hand_back(self) -> object:
        return await self.world.hand_back(self.lease)

    async def write(self) -> object:
        return await self.world.append(self.lease, note())

    async def complete(self) -> object:
        return await self._end(RunStatus.COMPLETED, RunCompleted(steps=1, tool_calls=1))

    async def fail(self) -> object:
        failure = Failure(code="broken", message="it broke")
        return await self._end(RunStatus.FAILED, RunFailed(failure=failure), failure=failure)

    async def end_cancelled(self) -> object:
        return await self._end(RunStatus.CANCELLED, RunCancelled())

    async def _end(self, status: RunStatus, payload: Payload, failure: Failure | None = None) -> object:
        """As the runtime ends a run: with a result for the call it believes to be open."""
        facts = await self.world.facts(self.lease.run)
        events, changes = closing(facts.calls, Actor("worker"), "ended", "the run ended")
        ended = NewEvent(payload, Actor("worker"), run_id=self.lease.run.run_id)
        append = self.world.request(self.lease)
        return await self.world.store.log.append(
            type(append)(
                append.session, (*events, ended), self.lease, run=RunChange(status, failure=failure), changes=changes
            )
        )

    # What somebody else does.

    async def answer(self) -> object:
        control = self.world.store.control
        match self.open.status:
            case InvocationStatus.AWAITING_INPUT:
                return await control.answer(self.world.scope, self.lease.run.run_id, self.open.id, "yes")
            case InvocationStatus.AWAITING_APPROVAL:
                return await control.approve(self.world.scope, self.lease.run.run_id, self.open.id)
            case _:
                return await control.deliver(self.lease.run, self.open.id, result(data="done"))

    async def deny(self) -> object:
        return await self.world.store.control.deny(self.world.scope, self.lease.run.run_id, self.open.id)

    async def expire(self) -> object:
        wait = ExpiredWait(self.lease.run, self.open.id)
        return await self.world.store.run_sweeps.expire_wait(wait, now=later())

    async def cancel(self) -> object:
        return await self.world.store.control.cancel(self.world.scope, self.lease.run.run_id)

    async def reclaim(self) -> object:
        expired = ExpiredLease(self.lease.run, self.lease.owner, self.lease.epoch)
        return await self.world.store.run_sweeps.reclaim(expired, now=later())

    async def use_up(self) -> object:
        expired = ExpiredLease(self.lease.run, self.lease.owner, self.lease.epoch)
        return await self.world.store.run_sweeps.reclaim(expired, now=later(), max_attempts=1)

    async def miss_the_deadline(self) -> object:
        return await self.world.store.run_sweeps.fail_hopeless(self.lease.run, now=later(100_000))


Act = Callable[[Meeting], Awaitable[object]]
HOLDER: tuple[Act, ...] = (
    Meeting.wait,
    Meeting.hand_back,
    Meeting.write,
    Meeting.complete,
    Meeting.fail,
    Meeting.end_cancelled,
)
OTHERS: dict[InvocationStatus, tuple[Act, ...]] = {
    INPUT: (
        Meeting.answer,
        Meeting.expire,
        Meeting.cancel,
        Meeting.reclaim,
        Meeting.use_up,
        Meeting.miss_the_deadline,
    ),
    APPROVAL: (Meeting.answer, Meeting.deny, Meeting.expire, Meeting.cancel),
    CHILD: (Meeting.answer, Meeting.cancel),
}


@pytest.fixture
async def store(database: Database) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(
        Addresses(app=database.dsn), role_prefix=database.role_prefix, artifact_bytes=MemoryArtifactBytes()
    )
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.parametrize("status", OTHERS, ids=lambda status: status.value)
async def test_whoever_comes_first_the_other_judges_what_it_finds(
    store: PostgresStore, database: Database, status: InvocationStatus
) -> None:
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as admin:
        for holder, other, holder_first in product(HOLDER, OTHERS[status], (True, False)):
            meeting = await prepared(World(store), status)
            first, second = (holder, other) if holder_first else (other, holder)
            outcomes = await one_after_the_other(admin, database, meeting, first, second)
            case = f"{status}: {first.__name__} before {second.__name__}"
            facts = await meeting.world.facts(meeting.lease.run)
            judge(facts, meeting, case)
            raised = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            assert all(isinstance(error, WakefulError) for error in raised), (case, raised)
            assert not isinstance(outcomes[0], BaseException), (case, outcomes[0])
            told(facts, other, outcomes[1 if holder_first else 0], case)


async def prepared(world: World, status: InvocationStatus) -> Meeting:
    lease = await world.running(deadline=later(50_000))
    waits = call(lease.run, status=status, expires_in=None if status is CHILD else SOON)
    await world.turn(lease, waits)
    return Meeting(world, lease, waits)


async def one_after_the_other(
    admin: "psycopg.AsyncConnection[Any]", database: Database, meeting: Meeting, first: Act, second: Act
) -> list[Any]:
    """Both are sent while the session's row is held; they get it in the order in which they came."""
    async with await psycopg.AsyncConnection.connect(database.dsn) as holding:
        await holding.execute(
            "SELECT FROM wakeful.sessions WHERE id = %s FOR NO KEY UPDATE", [meeting.lease.run.session_id]
        )
        tasks = []
        for count, act in enumerate((first, second), 1):
            tasks.append(asyncio.ensure_future(act(meeting)))
            async with asyncio.timeout(10):
                while await blocked(admin) < count:  # noqa: ASYNC110 - a lock wait announces itself to nobody
                    await asyncio.sleep(0.005)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def blocked(admin: "psycopg.AsyncConnection[Any]") -> int:
    row = await (await admin.execute(_BLOCKED)).fetchone()
    return 0 if row is None else int(row[0])


def judge(facts: Facts, meeting: Meeting, case: str) -> None:
    """What holds in every state of a run, whoever brought it there."""
    run, calls = facts.run, facts.calls
    results = Counter(e.payload.invocation_id for e in facts.events if isinstance(e.payload, CallEnded))
    for each in calls:
        assert results[each.id] == (1 if each.status.terminal else 0), (case, each.status)
    open_ = {each.status for each in calls if not each.status.terminal}
    if run.status.terminal:
        assert not open_, case
    if run.status in WAITING:
        assert waiting_status(open_ & AWAITING) is run.status, case
        assert not open_ - AWAITING, case
    assert (run.lease_owner is not None) == (run.status is RunStatus.RUNNING), case
    assert [event.sequence for event in facts.events] == list(range(1, len(facts.events) + 1)), case
    assert facts.events == sorted(facts.events, key=lambda event: event.created_at), case
    ends = [event for event in facts.events if event.type in TERMINAL]
    assert len(ends) == run.status.terminal, case
    assert not ends or facts.events[-1] is ends[0], case
    assert run.lease_expirations <= 1, case


def told(facts: Facts, other: Act, outcome: Any, case: str) -> None:
    """Whoever was told that it succeeded finds what it did; a cancel is never forgotten."""
    payloads = [event.payload for event in facts.events]
    if other is Meeting.cancel:
        assert not isinstance(outcome, BaseException), (case, outcome)
        asked = any(isinstance(payload, RunCancelRequested) for payload in payloads)
        assert asked == (facts.run.cancel_requested_at is not None), case
        assert facts.run.status.terminal or asked, case
    if other in (Meeting.answer, Meeting.deny) and getattr(outcome, "applied", False):
        assert any(isinstance(payload, CallEnded | CallApproved) for payload in payloads), case
        assert facts.run.status not in WAITING, case

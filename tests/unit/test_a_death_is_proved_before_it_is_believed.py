"""A worker counts as dead only when its mark was seen, stayed away for the notice, and nothing was renewed since."""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import pytest
from support.pools import LEASE, let_expire, read, submit
from support.runs import Clock

from wakeful.domain.errors import ConfigurationError, Unavailable
from wakeful.domain.ids import new_id
from wakeful.domain.ports.presence import Presence, mark_of
from wakeful.domain.runs import Claim
from wakeful.domain.states import PriorityClass, RunStatus
from wakeful.persistence.memory import MemoryStore
from wakeful.scheduler.deaths import DeathCounts, DeathSweep, DeathSweepConfig

pytestmark = [pytest.mark.anyio, pytest.mark.spec("QUE-6")]

NOTICE = timedelta(seconds=3)
CONFIG = DeathSweepConfig(interval=timedelta(seconds=0.25), notice=NOTICE)


@dataclass
class Watched:
    """A store in memory, marks that the test sets, and a watcher whose clock the test moves."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore(clock=Clock()))
    marks: set[int] = field(default_factory=set)
    connection: int = 1
    blind: bool = False
    away: bool = False
    now: float = 100.0

    def __post_init__(self) -> None:
        self.sweep = DeathSweep(self.store.run_sweeps, self, config=CONFIG, clock=lambda: self.now)

    async def look(self) -> Presence | None:
        if self.away:
            raise Unavailable("away")
        return None if self.blind else Presence(self.connection, frozenset(self.marks))

    async def close(self) -> None:
        return

    async def watch(self, seconds: float, *, every: float = 0.25) -> DeathCounts:
        """Look at intervals for this long; what the passes did together."""
        total, until = DeathCounts(), self.now + seconds
        while True:
            counts = await self.sweep.run_once()
            total = DeathCounts(
                requeued=total.requeued + counts.requeued,
                failed=total.failed + counts.failed,
                kept=total.kept + counts.kept,
                alive=total.alive + counts.alive,
            )
            if self.now >= until:
                return total
            self.now = min(self.now + every, until)

    async def worker(self, *, runs: int = 1) -> tuple[UUID, list[Claim]]:
        """An owner that holds runs and has its mark."""
        owner = new_id()
        self.marks.add(mark_of(owner))
        for _ in range(runs):
            await submit(self.store)
        return owner, await self.claim(owner, runs)

    async def claim(self, owner: UUID, runs: int) -> list[Claim]:
        capacity = {PriorityClass.INTERACTIVE: runs}
        return await self.store.queue.claim(owner, capacity=capacity, agents=("clerk",), lease=LEASE, suspects=8)

    async def status(self, claim: Claim) -> RunStatus:
        return (await read(self.store, claim.lease.run)).status


async def test_its_leases_are_expired_once_the_notice_is_over_and_not_before() -> None:
    watched = Watched()
    _owner, claims = await watched.worker(runs=3)
    await watched.watch(1)
    watched.marks.clear()
    assert await watched.watch(NOTICE.total_seconds() - 0.01) == DeathCounts()
    assert (await watched.watch(0.3)).requeued == 3
    for claim in claims:
        run = await read(watched.store, claim.lease.run)
        assert (run.status, run.lease_expirations, run.suspect) == (RunStatus.QUEUED, 1, True)
        assert [failure["reason"] for failure in run.attempt_failures] == ["worker_died"]
        assert run.scheduled_for is not None
        assert run.scheduled_for > run.updated_at


async def test_the_neighbour_that_is_still_there_keeps_its_runs() -> None:
    watched = Watched()
    owner, (mine,) = await watched.worker()
    _, (other,) = await watched.worker()
    await watched.watch(1)
    watched.marks.discard(mark_of(owner))
    assert (await watched.watch(5)).requeued == 1
    assert (await watched.status(mine), await watched.status(other)) == (RunStatus.QUEUED, RunStatus.RUNNING)


async def test_a_worker_that_was_never_seen_is_left_to_its_leases() -> None:
    watched = Watched()
    _owner, (claim,) = await watched.worker()
    watched.marks.clear()
    assert await watched.watch(20) == DeathCounts()
    assert await watched.status(claim) is RunStatus.RUNNING


async def test_a_mark_that_comes_back_begins_the_notice_anew() -> None:
    watched = Watched()
    owner, (claim,) = await watched.worker()
    await watched.watch(1)
    watched.marks.clear()
    await watched.watch(2.5)
    watched.marks.add(mark_of(owner))
    await watched.watch(0.5)
    watched.marks.clear()
    assert await watched.watch(2.5) == DeathCounts()
    assert await watched.status(claim) is RunStatus.RUNNING
    assert (await watched.watch(1)).requeued == 1


async def test_nothing_is_concluded_across_two_connections() -> None:
    watched = Watched()
    _owner, (claim,) = await watched.worker()
    await watched.watch(1)
    watched.marks.clear()
    await watched.watch(2)
    watched.away = True
    with pytest.raises(Unavailable):
        await watched.watch(1)
    watched.away, watched.connection = False, 2
    assert await watched.watch(20) == DeathCounts()
    assert await watched.status(claim) is RunStatus.RUNNING


async def test_a_worker_that_renewed_a_lease_meanwhile_is_alive() -> None:
    watched = Watched()
    owner, (first, second) = await watched.worker(runs=2)
    await watched.watch(1)
    watched.marks.clear()
    await watched.watch(1)
    watched.store.lease_keeper().heartbeat(owner, [first.lease], lease=LEASE)
    assert await watched.watch(20) == DeathCounts(alive=1)
    assert (await watched.status(first), await watched.status(second)) == (RunStatus.RUNNING, RunStatus.RUNNING)


async def test_a_worker_that_claimed_a_run_meanwhile_is_alive() -> None:
    watched = Watched()
    owner, (first,) = await watched.worker()
    await watched.watch(1)
    watched.marks.clear()
    await watched.watch(1)
    await submit(watched.store)
    await watched.claim(owner, 1)
    assert await watched.watch(20) == DeathCounts(alive=1)
    assert await watched.status(first) is RunStatus.RUNNING


async def test_a_lease_renewed_between_proof_and_expiry_is_kept() -> None:
    watched = Watched()
    owner, (claim,) = await watched.worker()
    await watched.watch(1)
    watched.marks.clear()
    held_by = watched.store.run_sweeps.held_by

    async def renewed_after_the_look(marks: "list[int]") -> object:
        leases = await held_by(marks)
        if watched.now >= 104.0:
            watched.store.lease_keeper().heartbeat(owner, [claim.lease], lease=LEASE)
        return leases

    watched.store.run_sweeps.held_by = renewed_after_the_look  # type: ignore[method-assign, assignment]
    assert await watched.watch(4) == DeathCounts(kept=1)
    assert await watched.status(claim) is RunStatus.RUNNING


async def test_time_in_which_nobody_looked_proves_nothing() -> None:
    watched = Watched()
    _owner, (claim,) = await watched.worker()
    await watched.watch(1)
    watched.marks.clear()
    await watched.watch(0.25)
    watched.now += 60.0
    assert await watched.watch(0.5) == DeathCounts()
    assert await watched.status(claim) is RunStatus.RUNNING
    assert (await watched.watch(3)).requeued == 1


async def test_a_worker_that_ended_in_good_order_is_no_death() -> None:
    watched = Watched()
    _owner, (claim,) = await watched.worker()
    let_expire(watched.store, claim.lease)
    (expired,) = await watched.store.run_sweeps.expired_leases(1)
    await watched.watch(1)
    await watched.store.run_sweeps.reclaim(expired)
    watched.marks.clear()
    assert await watched.watch(20) == DeathCounts()


async def test_behind_a_pooler_leases_alone_decide() -> None:
    watched = Watched()
    _owner, (claim,) = await watched.worker()
    await watched.watch(1)
    watched.marks.clear()
    watched.blind = True
    assert await watched.watch(20) == DeathCounts()
    assert await watched.status(claim) is RunStatus.RUNNING


def test_a_notice_shorter_than_the_looks_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="longer than the interval"):
        DeathSweepConfig(interval=timedelta(seconds=1), notice=timedelta(seconds=1))


async def test_two_watchers_count_one_crash() -> None:
    watched = Watched()
    second = DeathSweep(watched.store.run_sweeps, watched, config=CONFIG, clock=lambda: watched.now)
    _owner, (claim,) = await watched.worker()
    for _ in range(20):
        await watched.sweep.run_once()
        await second.run_once()
        watched.now += 0.25
        if watched.now > 101:
            watched.marks.clear()
    assert (await read(watched.store, claim.lease.run)).lease_expirations == 1

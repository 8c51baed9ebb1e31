"""What one forked process does: submit, execute, answer, sweep, until everything of its tenant has ended.

It stands for every process that has a part in a run: the agent process, the worker, the sweeper, and the people who
answer. All of them may die between any two statements.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from wakeful.app import App
from wakeful.bootstrap.apps import catalogue_of
from wakeful.domain.agents import Catalogue
from wakeful.domain.errors import Timeout
from wakeful.domain.ids import new_id
from wakeful.domain.runs import Budget, Claim, Message, Run, Submission
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import WAITING, InvocationStatus, PriorityClass
from wakeful.faults.crashes.orders import Order
from wakeful.faults.crashes.points import Points
from wakeful.persistence.store import Addresses, PostgresStore
from wakeful.runtime.executor import Executor
from wakeful.runtime.holding import Holding

__all__ = ["execute"]

LEASE = timedelta(minutes=5)
LATER = timedelta(hours=1)
"""Past every lease and every backoff: the database is told that it is so late, where it takes a time."""
ROUNDS = 100
ANSWER = "the red one"


async def execute(order: Order, app: App, points: Points, report: int) -> None:
    """Return when every run of the order's tenant is terminal and delivered. Raises Timeout when none moves on."""
    store = PostgresStore(
        Addresses(app=order.dsn), role_prefix=order.role_prefix, pool_size=2, worker_pool_size=1, event_hints=False
    )
    await store.open()
    try:
        points.arm(order.crash, report)
        await _Process(order, catalogue_of(app), store, points).run()
    finally:
        points.disarm()
        await store.close()


class _Process:
    def __init__(self, order: Order, catalogue: Catalogue, store: PostgresStore, points: Points) -> None:
        self._order, self._store, self._points = order, store, points
        self._catalogue = catalogue
        self._scope = Scope(order.tenant, order.tenant)
        self._now = datetime.now(UTC) + LATER if order.recover else None
        self._executor = Executor(
            log=store.log, queue=store.queue, sessions=store.sessions, catalogue=catalogue, artifacts=store.artifacts
        )

    async def run(self) -> None:
        await self._submit()
        if self._order.recover:
            await self._reclaim()
        for _ in range(ROUNDS):
            await self._sweep_children()
            if claims := await self._claim():
                for claim in claims:
                    await self._executor.execute(Holding(claim, trusted_until=time.monotonic() + LEASE.total_seconds()))
                continue
            runs = await self._runs()
            if all(run.status.terminal and (run.parent is None or run.result_delivered_at) for run in runs):
                return
            for run in runs:
                if run.status in WAITING:
                    await self._answer(run)
        raise Timeout(f"the runs of {self._order.run} no longer move: {[str(run.status) for run in runs]}")

    async def _submit(self) -> None:
        order = self._order
        await self._store.sessions.create(NewSession(self._scope, order.agent, session_id=order.session))
        await self._store.queue.submit(
            Submission(
                self._scope,
                order.session,
                order.agent,
                self._catalogue.agent(order.agent).version,
                messages=(Message(order.message),),
                run_id=order.run,
                budget=Budget(max_tool_calls=order.max_tool_calls),
            )
        )

    async def _reclaim(self) -> None:
        for expired in await self._store.run_sweeps.expired_leases(100, now=self._now):
            await self._store.run_sweeps.reclaim(expired, now=self._now)

    async def _claim(self) -> Sequence[Claim]:
        return await self._store.queue.claim(
            new_id(),
            capacity=dict.fromkeys(PriorityClass, 4),
            agents=self._catalogue.names,
            lease=LEASE,
            suspects=4,
            now=self._now,
        )

    async def _sweep_children(self) -> None:
        for child in await self._store.child_sweeps.undelivered(100):
            await self._store.child_sweeps.deliver_child(child)
        for orphan in await self._store.child_sweeps.orphans(100):
            await self._store.child_sweeps.cancel_orphan(orphan)

    async def _runs(self) -> list[Run]:
        with self._points.quiet():
            return await self._store.runs.page(self._scope, limit=100)

    async def _answer(self, run: Run) -> None:
        ref = run.ref.run_id
        with self._points.quiet():
            calls = await self._store.runs.invocations(self._scope, ref)
        for call in calls:
            if call.status is InvocationStatus.AWAITING_INPUT:
                await self._store.control.answer(self._scope, ref, call.id, ANSWER)
            elif call.status is InvocationStatus.AWAITING_APPROVAL and (call.step + call.position) % 3 == 0:
                await self._store.control.deny(self._scope, ref, call.id)
            elif call.status is InvocationStatus.AWAITING_APPROVAL:
                await self._store.control.approve(self._scope, ref, call.id)

"""Executing runs in the test's own process, over any store, with crashes placed where the test wants them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from wakeful.app import App
from wakeful.domain.agents import Catalogue
from wakeful.domain.appends import Append, Appended
from wakeful.domain.events import Event
from wakeful.domain.history import Conversation, TurnEntry
from wakeful.domain.ids import new_id
from wakeful.domain.invocations import Invocation
from wakeful.domain.runs import Budget, Claim, Message, Run, Submission
from wakeful.domain.scopes import RunRef, Scope, SessionRef
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import PriorityClass
from wakeful.models.scripted import Script, ScriptedProvider
from wakeful.persistence.memory import MemoryStore
from wakeful.runtime.agent_driver import AgentDriver
from wakeful.runtime.executor import Executor
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending
from wakeful.runtime.settings import ExecutionSettings

LEASE = timedelta(seconds=30)
CAPACITY = {PriorityClass.INTERACTIVE: 10, PriorityClass.ASYNC: 10, PriorityClass.MAINTENANCE: 10}


class Crash(BaseException):
    """The process dies here: nothing in it may catch this and go on."""


class Clock:
    """The store's clock, moved by the test."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.moment += timedelta(microseconds=1)
        return self.moment

    def pass_(self, **duration: float) -> None:
        self.moment += timedelta(**duration)


class CrashingLog:
    """An event log that dies before or after its n-th append (from 1), and counts them."""

    def __init__(self, log: Any, *, crash_at: int | None = None, after: bool = False) -> None:
        self._log, self._crash_at, self._after = log, crash_at, after
        self.appends = 0
        self.crashed = False

    async def append(self, append: Append) -> Appended:
        if self.crashed:
            raise Crash
        self.appends += 1
        here = self.appends == self._crash_at
        if here and not self._after:
            self.crashed = True
            raise Crash
        appended: Appended = await self._log.append(append)
        if here:
            self.crashed = True
            raise Crash
        return appended

    async def read(self, session: SessionRef, **options: Any) -> list[Event]:
        events: list[Event] = await self._log.read(session, **options)
        return events


@dataclass
class Office:
    """An app, a store and workers in this process."""

    app: App
    store: MemoryStore
    clock: Clock
    scope: Scope = field(default_factory=lambda: Scope(new_id(), new_id()))
    settings: ExecutionSettings = field(default_factory=lambda: ExecutionSettings(cancel_grace=timedelta(seconds=0.05)))

    async def submit(self, agent: str, *messages: str, session_id: UUID | None = None, **options: Any) -> RunRef:
        session = session_id or new_id()
        await self.store.sessions.create(NewSession(self.scope, agent, session_id=session))
        submitted = await self.store.queue.submit(
            Submission(
                self.scope,
                session,
                agent,
                1,
                messages=tuple(Message(text) for text in messages),
                budget=options.pop("budget", Budget()),
                **options,
            )
        )
        return submitted.run

    async def claim(self, *, suspects: int = 8) -> list[Claim]:
        return await self.store.queue.claim(
            new_id(), capacity=CAPACITY, agents=self.agents, lease=LEASE, suspects=suspects
        )

    @property
    def agents(self) -> Sequence[str]:
        return self.catalogue().names

    def catalogue(self) -> Catalogue:
        return self.app.catalogue(make_driver=AgentDriver)

    def executor(self, log: Any | None = None) -> Executor:
        return Executor(
            log=log or self.store.log,
            queue=self.store.queue,
            sessions=self.store.sessions,
            catalogue=self.catalogue(),
            artifacts=self.store.artifacts,
            settings=self.settings,
        )

    def holding(self, claim: Claim) -> Holding:
        return Holding(claim, trusted_until=time.monotonic() + LEASE.total_seconds())

    async def work(self, log: Any | None = None) -> list[Ending]:
        """Execute everything due, and what becomes due by it, until nothing is."""
        endings: list[Ending] = []
        while claims := await self.claim():
            endings.extend([await self.executor(log).execute(self.holding(claim)) for claim in claims])
            await self.sweep()
        return endings

    async def sweep(self) -> None:
        """Deliver children and cancel orphans, as the scheduler would."""
        for child in await self.store.child_sweeps.undelivered(100):
            await self.store.child_sweeps.deliver_child(child)
        for orphan in await self.store.child_sweeps.orphans(100):
            await self.store.child_sweeps.cancel_orphan(orphan)

    async def expire_leases(self) -> None:
        """Let every lease lapse, sweep, and let the backoff pass."""
        self.clock.pass_(seconds=LEASE.total_seconds() + 1)
        for expired in await self.store.run_sweeps.expired_leases(100):
            await self.store.run_sweeps.reclaim(expired)
        self.clock.pass_(seconds=10)

    async def run(self, ref: RunRef) -> Run:
        return await self.store.runs.get(self.scope, ref.run_id)

    async def calls(self, ref: RunRef) -> list[Invocation]:
        return await self.store.runs.invocations(self.scope, ref.run_id)

    async def events(self, ref: RunRef) -> list[Event]:
        return await self.store.log.read(ref.session)

    async def types(self, ref: RunRef) -> list[str]:
        return [event.type for event in await self.events(ref)]

    async def conversation(self, ref: RunRef) -> Conversation:
        return Conversation.of(await self.events(ref))

    async def turns(self, ref: RunRef) -> list[TurnEntry]:
        return [e for e in (await self.conversation(ref)).entries if isinstance(e, TurnEntry)]


def office(register: Callable[[App], None], **scripts: Script) -> Office:
    """An office whose app has the scripted provider with `scripts`, and what `register` adds."""
    app = App()
    app.model_provider("scripted", ScriptedProvider(scripts))
    register(app)
    clock = Clock()
    return Office(app, MemoryStore(clock=clock), clock)

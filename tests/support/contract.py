"""What the contract suites share: a store behind its ports, and short words for what tests do to it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from wakeful.domain.appends import Append, Appended, RunChange
from wakeful.domain.checkpoints import Checkpoint, CheckpointState, NewCheckpoint
from wakeful.domain.content import CallResult, Failure
from wakeful.domain.events import Actor, Event, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import (
    RunCancelled,
    RunCheckpointed,
    RunCompleted,
    RunFailed,
    RunRequeued,
    RunStarted,
    RunWaiting,
    UserMessageReceived,
)
from wakeful.domain.events.turns import AssistantMessageCreated, CallEnded, CallStarted
from wakeful.domain.ids import new_id, result_event_id
from wakeful.domain.invocations import Invocation, InvocationChange, NewInvocation
from wakeful.domain.ports.artifacts import Artifacts
from wakeful.domain.ports.checkpoints import Checkpoints
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.ports.history import History
from wakeful.domain.ports.leases import LeaseKeeper
from wakeful.domain.ports.projections import Projections
from wakeful.domain.ports.run_control import RunControl
from wakeful.domain.ports.run_queue import RunQueue
from wakeful.domain.ports.sessions import RunReader, Sessions
from wakeful.domain.ports.sweeps import ChildSweeps, Housekeeping, RunSweeps
from wakeful.domain.runs import Claim, Lease, Message, Run, Submission
from wakeful.domain.scopes import RunRef, Scope, SessionRef
from wakeful.domain.sessions import NewSession, Session
from wakeful.domain.states import AWAITING, IdempotencyClass, InvocationStatus, PriorityClass, RunStatus, waiting_status

__all__ = [
    "EVERY_CLASS",
    "TERM",
    "WORKER",
    "Facts",
    "Store",
    "World",
    "call",
    "checkpoint",
    "later",
    "note",
    "outcomes",
    "result",
    "resumed_by",
    "said",
    "stranger",
    "turn_of",
]

TERM = timedelta(seconds=30)
WORKER = Actor("worker", "w1")
EVERY_CLASS = dict.fromkeys(PriorityClass, 100)
OPEN = frozenset({InvocationStatus.REQUESTED, InvocationStatus.RUNNING}) | AWAITING


class Store(Protocol):
    """Every port, as the composition root hands them out."""

    @property
    def log(self) -> EventLog: ...
    @property
    def queue(self) -> RunQueue: ...
    @property
    def control(self) -> RunControl: ...
    @property
    def runs(self) -> RunReader: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def checkpoints(self) -> Checkpoints: ...
    @property
    def artifacts(self) -> Artifacts: ...
    @property
    def projections(self) -> Projections: ...
    @property
    def history(self) -> History: ...
    @property
    def run_sweeps(self) -> RunSweeps: ...
    @property
    def child_sweeps(self) -> ChildSweeps: ...
    @property
    def housekeeping(self) -> Housekeeping: ...
    def lease_keeper(self) -> LeaseKeeper: ...


def later(seconds: float = 3600) -> datetime:
    """A moment that has not come, for `now`."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


def call(
    run: RunRef,
    position: int = 0,
    *,
    step: int = 1,
    status: InvocationStatus = InvocationStatus.REQUESTED,
    idempotency: IdempotencyClass = IdempotencyClass.READ_ONLY,
    **fields: Any,
) -> NewInvocation:
    """A proposed call of the run."""
    values = {"tool": "look", "arguments_hash": "a" * 64, **fields}
    return NewInvocation(run.run_id, step, position, idempotency_class=idempotency, status=status, **values)


def turn_of(step: int = 1, content: str | None = "let me look") -> AssistantMessageCreated:
    return AssistantMessageCreated(step=step, content=content)


def result(status: InvocationStatus = InvocationStatus.COMPLETED, data: Any = None) -> CallResult:
    return CallResult(status=status, code=status.lower(), data=data)


@dataclass(frozen=True)
class Facts:
    """Everything stored about a run and its session, to compare before and after."""

    run: Run
    session: Session
    events: list[Event]
    calls: list[Invocation]
    checkpoint: Checkpoint | None

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def status_of(self, call_id: UUID) -> InvocationStatus:
        return next(stored.status for stored in self.calls if stored.id == call_id)

    def result_of(self, call_id: UUID) -> CallResult:
        """The call's one result; fails when there is none, or a second."""
        (found,) = [
            event.payload.result
            for event in self.events
            if isinstance(event.payload, CallEnded) and event.payload.invocation_id == call_id
        ]
        return found


@dataclass
class World:
    """A store with one principal and one worker; every method does one thing through a port."""

    store: Store
    scope: Scope = field(default_factory=lambda: Scope(new_id(), new_id()))
    owner: UUID = field(default_factory=new_id)

    async def session(self, scope: Scope | None = None, **fields: Any) -> Session:
        return await self.store.sessions.create(NewSession(scope or self.scope, "helper", **fields))

    def submission(self, session: Session, *texts: str, **fields: Any) -> Submission:
        values = {"agent": "helper", "agent_version": 1, "messages": tuple(Message(text) for text in texts), **fields}
        return Submission(session.scope, session.session_id, **values)

    async def queued(self, *, scope: Scope | None = None, **fields: Any) -> RunRef:
        """A run in a session of its own."""
        session = await self.session(scope)
        return (await self.store.queue.submit(self.submission(session, "hello", **fields))).run

    async def claims(self, **options: Any) -> list[Claim]:
        values = {"capacity": EVERY_CLASS, "agents": ["helper"], "lease": TERM, "suspects": 8, **options}
        owner = values.pop("owner", self.owner)
        return await self.store.queue.claim(owner, **values)

    async def claim(self, **options: Any) -> Lease:
        """The lease of the one run that is due."""
        (only,) = await self.claims(**options)
        return only.lease

    async def running(self, **fields: Any) -> Lease:
        """The lease of a new run that was started."""
        run = await self.queued(**fields)
        claims = await self.claims()
        (lease,) = [claim.lease for claim in claims if claim.lease.run == run]
        await self.append(lease, RunStarted(epoch=lease.epoch), run=RunChange(started=True))
        return lease

    async def append(self, lease: Lease, *payloads: Payload, **parts: Any) -> Appended:
        return await self.store.log.append(self.request(lease, *payloads, **parts))

    def request(self, lease: Lease, *payloads: Payload, **parts: Any) -> Append:
        events = tuple(NewEvent(payload, WORKER, run_id=lease.run.run_id) for payload in payloads)
        return Append(lease.run.session, events, lease, **parts)

    async def saved(self, lease: Lease, new: NewCheckpoint) -> int | None:
        """Write a checkpoint with an append that says nothing else; its number."""
        return (await self.append(lease, note(), checkpoint=new)).checkpoint

    async def turn(self, lease: Lease, *proposals: NewInvocation, step: int = 1) -> Appended:
        return await self.append(lease, turn_of(step), run=RunChange(step=step), proposals=proposals)

    async def start_call(self, lease: Lease, new: NewInvocation) -> Appended:
        """The intent: the call is RUNNING under this lease."""
        payload = CallStarted(
            invocation_id=new.id, step=new.step, position=new.position, tool=new.tool, epoch=lease.epoch, attempt=1
        )
        change = InvocationChange(new.id, InvocationStatus.RUNNING, OPEN, epoch=lease.epoch)
        return await self.append(lease, payload, changes=(change,))

    def ending(
        self, lease: Lease, new: NewInvocation, kind: type[CallEnded], outcome: CallResult, **fields: Any
    ) -> Append:
        """The append that gives a call its result."""
        payload = kind(invocation_id=new.id, step=new.step, position=new.position, tool=new.tool, result=outcome)
        event = NewEvent(payload, WORKER, run_id=lease.run.run_id, event_id=result_event_id(new.id))
        change = InvocationChange(new.id, outcome.status, OPEN, **fields)
        return Append(lease.run.session, (event,), lease, changes=(change,))

    async def park(self, lease: Lease, status: RunStatus) -> Appended:
        return await self.append(lease, RunWaiting(status=status, calls=[]), run=RunChange(status))

    async def waiting(self, *statuses: InvocationStatus, **fields: Any) -> tuple[RunRef, list[NewInvocation]]:
        """A run that waits for one call in each of these states."""
        lease = await self.running()
        calls = [call(lease.run, position, status=status, **fields) for position, status in enumerate(statuses)]
        await self.turn(lease, *calls)
        await self.park(lease, waiting_status(frozenset(statuses)) or RunStatus.WAITING_INPUT)
        return lease.run, calls

    async def hand_back(self, lease: Lease, **change: Any) -> Appended:
        payload = RunRequeued(reason="drain", epoch=lease.epoch)
        return await self.append(lease, payload, run=RunChange(RunStatus.QUEUED, **change))

    async def end(self, lease: Lease, status: RunStatus = RunStatus.COMPLETED) -> Appended:
        failure = Failure(code="broken", message="it broke")
        payloads: dict[RunStatus, Payload] = {
            RunStatus.COMPLETED: RunCompleted(steps=1, tool_calls=0),
            RunStatus.FAILED: RunFailed(failure=failure),
            RunStatus.CANCELLED: RunCancelled(),
        }
        change = RunChange(status, failure=failure if status is RunStatus.FAILED else None)
        return await self.append(lease, payloads[status], run=change)

    async def crashed(self, lease: Lease, **options: Any) -> RunStatus | None:
        """The lease expires and is swept."""
        expired = await self.store.run_sweeps.expired_leases(10, now=later())
        (found,) = [candidate for candidate in expired if candidate.run == lease.run]
        return await self.store.run_sweeps.reclaim(found, now=later(), **options)

    async def facts(self, run: RunRef, scope: Scope | None = None) -> Facts:
        scope = scope or self.scope
        return Facts(
            run=await self.store.runs.get(scope, run.run_id),
            session=await self.store.sessions.get(scope, run.session_id),
            events=await self.store.log.read(run.session),
            calls=await self.store.runs.invocations(scope, run.run_id),
            checkpoint=await self.store.checkpoints.latest(run),
        )

    async def types(self, session: SessionRef) -> list[str]:
        return [event.type for event in await self.store.log.read(session)]


def stranger(lease: Lease) -> Lease:
    """The same run and epoch, claimed by somebody else."""
    return replace(lease, owner=new_id())


def note(text: str = "note") -> RunCheckpointed:
    """An event that changes nothing else."""
    return RunCheckpointed(trigger=text)


def said(text: str) -> NewEvent:
    return NewEvent(UserMessageReceived(content=text), Actor("platform"))


def resumed_by(facts: Facts) -> RunRequeued:
    """The run.requeued at the end of the log."""
    payload = facts.events[-1].payload
    assert isinstance(payload, RunRequeued)
    return payload


def checkpoint(trigger: str = "turn", **fields: Any) -> NewCheckpoint:
    return NewCheckpoint(trigger, CheckpointState(**fields))


async def outcomes(*actions: Any) -> tuple[list[Any], list[BaseException]]:
    """Do all at once; the answers, and what was raised."""
    found: Sequence[Any] = await asyncio.gather(*actions, return_exceptions=True)
    raised = [item for item in found if isinstance(item, BaseException)]
    return [item for item in found if not isinstance(item, BaseException)], raised

"""One execution's state: what the loop, the turn and the calls share. Everything in it can be had from the log."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import JsonValue

from wakeful.domain.agents import Agent
from wakeful.domain.checkpoints import BudgetState, CheckpointState, NewCheckpoint, PendingBatch
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.history import Conversation, TurnEntry
from wakeful.domain.invocations import Invocation, NewInvocation
from wakeful.domain.runs import Run
from wakeful.runtime.holding import Holding
from wakeful.runtime.journal import Journal
from wakeful.runtime.planning import Planner, Unplanned, counted_calls

__all__ = ["Course"]


@dataclass(slots=True)
class Course:
    """Where a run stands. Counters only grow, and are set, never added to twice."""

    run: Run
    agent: Agent
    holding: Holding
    journal: Journal
    actor: Actor
    step: int = 0
    """Steps committed."""
    tool_call_count: int = 0
    counted_through_step: int = 0
    """The newest step whose batch `tool_call_count` holds."""
    token_count: int = 0
    continuation: JsonValue = None
    summary: str | None = None
    summary_through: int | None = None
    unplanned: Unplanned = field(default_factory=Unplanned)
    """How calls of the turn that the run was taken up with are planned, if they have no row."""
    _assumed: tuple[int, int] | None = None
    """A step, and the count before its turn, where the turn's event does not say it."""
    _rows: dict[UUID, Invocation] = field(default_factory=dict)
    _updates: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)

    @property
    def conversation(self) -> Conversation:
        return self.journal.conversation

    @property
    def planner(self) -> Planner:
        return Planner(self.agent, self.run.ref.run_id, self.run.budget.max_tool_calls)

    def latest_turn(self) -> TurnEntry | None:
        return self.conversation.latest_turn(self.run.ref.run_id)

    def know(self, invocation: Invocation) -> None:
        """Take in a call's row as loaded."""
        self._rows[invocation.id] = invocation
        self.journal.calls[invocation.id] = invocation.status
        self.keep_updates(invocation, invocation.context_updates)

    def keep_updates(self, invocation: Invocation, updates: Mapping[str, Any] | None) -> None:
        """Take in what a call, whose result is committed, put into its context updates."""
        if updates:
            self._updates[invocation.step, invocation.position] = updates

    def context_updates(self) -> dict[str, Any]:
        """The run's context updates, those of later calls over those of earlier ones."""
        merged: dict[str, Any] = {}
        for _, updates in sorted(self._updates.items(), key=lambda item: item[0]):
            merged |= updates
        return merged

    def propose(self, new: NewInvocation) -> None:
        """Take in a call that is about to be written with its turn; its status counts once it is committed."""
        self._rows[new.id] = Invocation(
            id=new.id,
            run=self.run.ref,
            origin=new.origin,
            step=new.step,
            position=new.position,
            tool=new.tool,
            arguments_hash=new.arguments_hash,
            provider_call_id=new.provider_call_id,
            idempotency_class=new.idempotency_class,
            idempotency_key=new.idempotency_key,
            status=new.status,
            epoch=None,
            attempt=0,
            approved_by=None,
            child_run_id=new.child_run_id,
            child_session_id=new.child_session_id,
            context_updates=None,
            expires_at=None,
            created_at=self.run.created_at,
            started_at=None,
            finished_at=None,
        )

    def event(self, payload: Payload, *, event_id: UUID | None = None) -> NewEvent:
        """An event of this run by its holder."""
        chosen = {} if event_id is None else {"event_id": event_id}
        return NewEvent(payload, self.actor, run_id=self.run.ref.run_id, trace_id=self.run.trace_id, **chosen)

    def row(self, identity: UUID) -> Invocation:
        """A call's row, known or about to be written."""
        return self._rows[identity]

    def call(self, identity: UUID) -> Invocation | None:
        """A call's row with its status as of the log; None for a call without a row."""
        row, status = self._rows.get(identity), self.journal.calls.get(identity)
        return None if row is None or status is None else replace(row, status=status)

    def open_calls(self) -> list[Invocation]:
        """The run's calls that have no result yet, in (step, position) order."""
        # By status first: a long run has hundreds of answered calls, and this is asked in every step.
        still_open = [identity for identity, status in self.journal.calls.items() if not status.terminal]
        rows = (self.call(identity) for identity in still_open)
        return sorted((row for row in rows if row is not None), key=lambda r: (r.step, r.position))

    def time_left(self) -> timedelta | None:
        """Until the deadline, by the database's clock; None without one."""
        if self.run.deadline is None:
            return None
        now = self.journal.database_now()
        return None if now is None else self.run.deadline - now

    def count_before(self, turn: TurnEntry) -> int:
        """The tool calls counted before a turn. Logs without the watermark fall back to the run's own count."""
        before = self._before(turn)
        return self.tool_call_count if before is None else before

    def assume_before(self, step: int, count: int | None) -> None:
        """For a turn whose event does not say how many calls were counted before it; None: nobody knows."""
        self._assumed = None if count is None else (step, count)

    def count(self, turn: TurnEntry) -> None:
        """Count the batch, which has returned; counting it again changes nothing."""
        before = self._before(turn)
        if before is not None:
            self.tool_call_count = max(self.tool_call_count, before + counted_calls(turn))
        self.counted_through_step = max(self.counted_through_step, turn.step)

    def _before(self, turn: TurnEntry) -> int | None:
        if turn.count_before is None and self._assumed is not None and self._assumed[0] == turn.step:
            return self._assumed[1]
        return turn.count_before

    def checkpoint(self, trigger: str, *, pending: PendingBatch | None = None) -> NewCheckpoint:
        """The state as of the append it is written with; the journal makes it the chain's next one."""
        budget = BudgetState(
            step=self.step,
            tool_call_count=self.tool_call_count,
            token_count=self.token_count,
            counted_through_step=self.counted_through_step,
        )
        state = CheckpointState(
            budget=budget, pending=pending, summary=self.summary, summary_through=self.summary_through
        )
        return NewCheckpoint(trigger, state)

    def trusted_seconds(self) -> float:
        """How long the lease may be trusted without a further heartbeat."""
        return self.holding.trusted_until - time.monotonic()

"""What becomes of each call of a turn: run, ask, wait or refuse. Pure, so recovery decides as the loop did.

A batch is fitted to the tool-call budget against the count it was proposed under, then each call passes the guards:
synthesis reserve, known tool, valid arguments, not the n-th identical call in a row.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from wakeful.domain.agents import Agent
from wakeful.domain.canonical import sha256_hex
from wakeful.domain.content import ArtifactRef, CallResult, ProposedCall
from wakeful.domain.errors import InvalidPayload
from wakeful.domain.history import Conversation, TurnEntry
from wakeful.domain.ids import child_run_id, child_session_id, invocation_id
from wakeful.domain.invocations import NewInvocation
from wakeful.domain.payloads import check
from wakeful.domain.states import IdempotencyClass, InvocationStatus
from wakeful.domain.tools import ASK_USER, DELEGATE
from wakeful.runtime.safe import describe

__all__ = ["OVER_BUDGET", "Planned", "Planner", "Unplanned", "counted_calls", "fitted_size", "parse_arguments"]

OVER_BUDGET = "tool_call_budget"


@dataclass(frozen=True, slots=True)
class Planned:
    """A call with the state it starts in; `refusal` is its result when it never runs."""

    call: ProposedCall
    invocation: NewInvocation
    refusal: CallResult | None = None


def fitted_size(calls: int, count_before: int, max_tool_calls: int | None) -> int:
    """How many of a turn's calls fit the budget when `count_before` were counted before it."""
    if max_tool_calls is None:
        return calls
    return max(0, min(calls, max_tool_calls - count_before))


def counted_calls(turn: TurnEntry) -> int:
    """How many of a returned batch's calls fit the budget it was proposed under, whatever the budget is by now."""
    return sum(1 for record in turn.calls if record.result is None or record.result.code != OVER_BUDGET)


def parse_arguments(text: str | ArtifactRef) -> dict[str, Any]:
    """The argument object of a call; no text is no arguments. Raises ValueError saying what is wrong with it."""
    if isinstance(text, ArtifactRef):
        raise TypeError("arguments kept as an artifact have to be fetched first")
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the arguments are no valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"the arguments are a JSON {type(value).__name__}, not an object")
    try:
        check(value)
    except InvalidPayload as error:
        raise ValueError(str(error)) from None
    return value


def arguments_hash(text: str | ArtifactRef) -> str:
    """Equal for equal argument objects however they were written; of the text itself where it is no object."""
    if isinstance(text, ArtifactRef):
        return text.sha256
    try:
        return sha256_hex(parse_arguments(text))
    except ValueError:
        return sha256_hex({"unparsed": text.encode("utf-8", "replace").decode()})


@dataclass(frozen=True, slots=True)
class Unplanned:
    """What is known of calls that stand in the log without having been planned there."""

    pending: frozenset[int] | None = None
    """The positions of the batch that a checkpoint saved: fitted and guarded before. None where none was saved."""
    guarded: bool = True
    """Whether the guards are still to be passed; False where another call of the turn shows that they were."""


_NOTHING_KNOWN = Unplanned()


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the batches of one run."""

    agent: Agent
    run_id: UUID
    max_tool_calls: int | None

    def plan(
        self,
        step: int,
        calls: Sequence[ProposedCall],
        conversation: Conversation,
        *,
        count_before: int,
        tools_allowed: bool = True,
        known: Unplanned = _NOTHING_KNOWN,
    ) -> list[Planned]:
        """One Planned per call, in order. `conversation` holds what stood before the turn."""
        fits = fitted_size(len(calls), count_before, self.max_tool_calls)
        streak = _Streak.before(conversation, self.run_id, step)
        planned = []
        for index, call in enumerate(calls):
            digest = arguments_hash(call.arguments)
            length = streak.next(call.tool, digest)
            passed = known.pending is not None and call.position in known.pending
            guarded = known.guarded and not passed
            refusal = self._refusal(
                call,
                fits=passed or index < fits,
                length=length if guarded else 0,
                tools_allowed=tools_allowed or not guarded,
            )
            if refusal is None and known.pending is not None and not passed:
                refusal = _refused("not_pending", "the call was refused before its run was interrupted")
            planned.append(Planned(call, self._invocation(step, call, digest, refused=refusal is not None), refusal))
        return planned

    def _refusal(self, call: ProposedCall, *, fits: bool, length: int, tools_allowed: bool) -> CallResult | None:
        if not fits:
            return _refused(OVER_BUDGET, f"the run's budget of {self.max_tool_calls} tool calls is used up")
        if not tools_allowed:
            return _refused("synthesis_reserve", "this is the last step of the run: answer with what is known")
        if self._tool_class(call.tool) is None:
            return _refused("unknown_tool", f"there is no tool named {call.tool!r}")
        limit = self.agent.repeat_limit
        if limit is not None and length >= limit:
            return _refused("repeated_call", f"the same call {length} times in a row: do something else")
        try:
            self._validate(call)
        except ValueError as error:
            return _refused("invalid_arguments", describe(error).partition(": ")[2] or "invalid arguments")
        return None

    def _validate(self, call: ProposedCall) -> None:
        if isinstance(call.arguments, ArtifactRef):
            return  # Judged when it is fetched for execution: planning does no I/O.
        arguments = parse_arguments(call.arguments)
        match call.tool:
            case t if t == ASK_USER:
                if not isinstance(arguments.get("question"), str) or not arguments["question"].strip():
                    raise ValueError("'question' has to be a text")
            case t if t == DELEGATE:
                if arguments.get("agent") not in self.agent.delegates:
                    raise ValueError(f"'agent' has to be one of {', '.join(self.agent.delegates)}")
                if not isinstance(arguments.get("input"), str):
                    raise ValueError("'input' has to be a text")
            case name:
                self.agent.tools[name].validate(arguments)

    def _tool_class(self, name: str) -> IdempotencyClass | None:
        if name == ASK_USER and self.agent.asks:
            return IdempotencyClass.READ_ONLY
        if name == DELEGATE and self.agent.delegates:
            return IdempotencyClass.IDEMPOTENT
        tool = self.agent.tools.get(name)
        return tool.idempotency if tool else None

    def _invocation(self, step: int, call: ProposedCall, digest: str, *, refused: bool) -> NewInvocation:
        identity = invocation_id(self.run_id, step, call.position)
        status = InvocationStatus.REFUSED if refused else self._first_status(call.tool)
        child = status is InvocationStatus.AWAITING_CHILD
        return NewInvocation(
            run_id=self.run_id,
            step=step,
            position=call.position,
            tool=call.tool,
            arguments_hash=digest,
            idempotency_class=self._tool_class(call.tool) or IdempotencyClass.NON_IDEMPOTENT,
            status=status,
            provider_call_id=call.provider_call_id,
            child_run_id=child_run_id(identity) if child else None,
            child_session_id=child_session_id(identity) if child else None,
            expires_in=self._expires_in(call.tool, status),
        )

    def _first_status(self, name: str) -> InvocationStatus:
        if name == ASK_USER and self.agent.asks:
            return InvocationStatus.AWAITING_INPUT
        if name == DELEGATE and self.agent.delegates:
            return InvocationStatus.AWAITING_CHILD
        return InvocationStatus.AWAITING_APPROVAL if self.agent.tools[name].approval else InvocationStatus.REQUESTED

    def _expires_in(self, name: str, status: InvocationStatus) -> timedelta | None:
        if status is InvocationStatus.AWAITING_INPUT:
            return self.agent.question_expires
        if status is InvocationStatus.AWAITING_APPROVAL:
            return self.agent.tools[name].approval_expires
        return None


@dataclass(slots=True)
class _Streak:
    """How often the latest call stood in a row; derived from the log alone, so no checkpoint has to hold it."""

    last: tuple[str, str] | None = None
    length: int = 0

    def next(self, tool: str, digest: str) -> int:
        """The length of the streak once this call joins it."""
        call = (tool, digest)
        self.length = self.length + 1 if call == self.last else 1
        self.last = call
        return self.length

    @classmethod
    def before(cls, conversation: Conversation, run_id: UUID, step: int) -> "_Streak":
        """Reads backwards and stops at the first other call, so a long run pays no more than a short one."""
        streak = cls()
        for turn in conversation.turns_backwards(run_id):
            if turn.step >= step:
                continue
            for record in reversed(turn.calls):
                call = (record.call.tool, arguments_hash(record.call.arguments))
                if streak.last is None:
                    streak.last = call
                elif call != streak.last:
                    return streak
                streak.length += 1
        return streak


def _refused(code: str, message: str) -> CallResult:
    return CallResult(status=InvocationStatus.REFUSED, code=code, message=message)

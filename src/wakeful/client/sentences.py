"""Events in one line each, for people."""

from collections.abc import Callable
from typing import Any

from wakeful.domain.content import ArtifactRef, Content
from wakeful.domain.events import runs, turns
from wakeful.domain.events.envelope import Payload
from wakeful.domain.states import PriorityClass

__all__ = ["sentence", "shortened"]


def sentence(payload: Payload) -> str | None:
    """What the event says, without times and ids; None for a type that is shown otherwise or not at all."""
    say = _SENTENCES.get(type(payload))
    return say(payload) if say else None


def shortened(content: Content, characters: int = 120) -> str:
    """One line of a content, never longer than `characters`."""
    if isinstance(content, ArtifactRef):
        text = f"[{content.size_bytes} bytes outside the log] {content.preview}"
    elif isinstance(content, list):
        text = " ".join(str(part.get("text", f"[{part.get('type', 'part')}]")) for part in content)
    else:
        text = content or ""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def _and(text: str | None) -> str:
    return f": {text}" if text else ""


def _resumed(p: runs.RunResumed) -> str:
    source = f"checkpoint {p.checkpoint}" if p.checkpoint is not None else "the log alone"
    return f"resumed from {source} (lease epoch {p.epoch})"


def _model_failed(p: turns.ModelCallFailed) -> str:
    again = f", again in {p.delay_seconds:.1f} s" if p.delay_seconds is not None else ""
    return f"model call failed in step {p.step}, attempt {p.attempt} ({p.code}){again}"


_SENTENCES: dict[type[Payload], Callable[[Any], str]] = {
    runs.UserMessageReceived: lambda p: f"{p.role}: {shortened(p.content)}",
    runs.RunQueued: lambda p: f"queued for {p.agent} ({PriorityClass(p.priority).label})",
    runs.RunStarted: lambda p: f"started (lease epoch {p.epoch})",
    runs.RunResumed: _resumed,
    runs.RunWaiting: lambda p: f"{p.status} for {len(p.calls)} call{'' if len(p.calls) == 1 else 's'}",
    runs.RunRequeued: lambda p: f"queued again ({p.reason})",
    runs.RunFenced: lambda p: f"a worker noticed that it had lost the lease (epoch {p.epoch})",
    runs.RunCancelRequested: lambda p: f"cancel asked{_and(p.reason)}",
    runs.RunChildStarted: lambda p: f"child run {p.child_run_id} started",
    runs.ContextCompacted: lambda p: f"context compacted through {p.through_sequence}",
    runs.RunCompleted: lambda p: f"completed after {p.steps} steps and {p.tool_calls} tool calls",
    runs.RunFailed: lambda p: f"failed ({p.failure.code}): {shortened(p.failure.message)}",
    runs.RunCancelled: lambda p: f"cancelled{_and(p.reason)}",
    runs.SessionCreated: lambda p: f"session opened for {p.agent}",
    runs.SessionClosedEvent: lambda p: "session closed",
    turns.ModelCallFailed: _model_failed,
    turns.ApprovalRequested: lambda p: "approval requested",
    turns.CallApproved: lambda p: f"approved{_and(p.note)}",
    turns.CallResolved: lambda p: f"resolved: it {'happened' if p.happened else 'did not happen'}{_and(p.note)}",
}

"""The JSON of every thing the command line prints: names as in the domain, ids and times as text."""

from datetime import datetime
from typing import Any

from wakeful.client import Call
from wakeful.client.timeline import CallNode, Mark, StepNode, Timeline
from wakeful.domain.content import ArtifactRef, Content
from wakeful.domain.events import Event
from wakeful.domain.events.registry import UnknownPayload
from wakeful.domain.ports.run_control import Controlled
from wakeful.domain.runs import Run
from wakeful.domain.sessions import Session

__all__ = ["call_json", "content_json", "controlled_json", "event_json", "run_json", "session_json", "timeline_json"]


def run_json(run: Run) -> dict[str, Any]:
    return {
        "id": str(run.ref.run_id),
        "session": str(run.ref.session_id),
        "tenant": str(run.ref.tenant_id),
        "principal": str(run.principal_id),
        "agent": run.agent,
        "agent_version": run.agent_version,
        "status": run.status.value,
        "priority": run.priority.label,
        "step": run.step,
        "tool_call_count": run.tool_call_count,
        "token_count": run.token_count,
        "attempts": run.attempts,
        "lease_expirations": run.lease_expirations,
        "suspect": run.suspect,
        "failure": run.failure.model_dump(mode="json") if run.failure else None,
        "metadata": run.metadata,
        "parent": str(run.parent.run_id) if run.parent else None,
        "scheduled_for": _time(run.scheduled_for),
        "deadline": _time(run.deadline),
        "cancel_requested_at": _time(run.cancel_requested_at),
        "created_at": _time(run.created_at),
        "started_at": _time(run.started_at),
        "finished_at": _time(run.finished_at),
        "updated_at": _time(run.updated_at),
    }


def session_json(session: Session) -> dict[str, Any]:
    return {
        "id": str(session.session_id),
        "tenant": str(session.scope.tenant_id),
        "principal": str(session.scope.principal_id),
        "agent": session.agent,
        "title": session.title,
        "status": session.status,
        "last_sequence": session.last_sequence,
        "metadata": dict(session.metadata),
        "created_at": _time(session.created_at),
        "updated_at": _time(session.updated_at),
        "closed_at": _time(session.closed_at),
    }


def event_json(event: Event) -> dict[str, Any]:
    unknown = event.payload if isinstance(event.payload, UnknownPayload) else None
    return {
        "sequence": event.sequence,
        "type": unknown.stored_type if unknown else event.type,
        "version": event.version,
        "id": str(event.event_id),
        "session": str(event.session_id),
        "run": str(event.run_id) if event.run_id else None,
        "actor": {"type": event.actor.type, "id": event.actor.id},
        "payload": unknown.data if unknown else event.payload.model_dump(mode="json"),
        "trace_id": event.trace_id,
        "created_at": _time(event.created_at),
    }


def call_json(call: Call) -> dict[str, Any]:
    record = call.record
    return {
        "id": str(call.id),
        "run": str(record.run.run_id),
        "step": record.step,
        "position": record.position,
        "tool": call.tool,
        "arguments": content_json(call.arguments),
        "question": call.question,
        "status": call.status.value,
        "idempotency_class": record.idempotency_class.value,
        "idempotency_key": record.idempotency_key,
        "attempt": record.attempt,
        "expires_at": _time(call.expires_at),
        "created_at": _time(record.created_at),
        "started_at": _time(record.started_at),
        "finished_at": _time(record.finished_at),
        "resolved_at": _time(record.resolved_at),
    }


def controlled_json(done: Controlled) -> dict[str, Any]:
    return {"run": str(done.run.run_id), "status": done.status.value, "applied": done.applied}


def timeline_json(timeline: Timeline) -> list[dict[str, Any]]:
    return [_step(entry) if isinstance(entry, StepNode) else _mark(entry) for entry in timeline.entries]


def _step(step: StepNode) -> dict[str, Any]:
    return {
        "step": step.step,
        "at": _time(step.at),
        "provider": step.provider,
        "model": step.model,
        "usage": step.usage.model_dump(mode="json"),
        "content": content_json(step.content),
        "calls": [_call(call) for call in step.calls],
    }


def _call(call: CallNode) -> dict[str, Any]:
    return {
        "id": str(call.invocation_id) if call.invocation_id else None,
        "position": call.position,
        "tool": call.tool,
        "arguments": call.arguments,
        "attempts": call.attempts,
        "status": call.status,
        "result": call.result.model_dump(mode="json") if call.result else None,
        "notes": call.notes,
        "started_at": _time(call.started_at),
        "ended_at": _time(call.ended_at),
    }


def _mark(mark: Mark) -> dict[str, Any]:
    return {"type": mark.type, "at": _time(mark.at), "text": mark.text}


def content_json(content: Content) -> Any:
    return content.model_dump(mode="json") if isinstance(content, ArtifactRef) else content


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None

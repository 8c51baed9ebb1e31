"""Submissions: domain to the parameters of the submit function, and its row back to the domain."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from wakeful.domain.events import Actor
from wakeful.domain.events.envelope import Payload
from wakeful.domain.events.runs import RunQueued, UserMessageReceived
from wakeful.domain.ids import derived_id
from wakeful.domain.runs import Submission, Submitted
from wakeful.domain.scopes import RunRef
from wakeful.persistence.mappers.appends import json_text

__all__ = ["submission_parameters", "submitted_of"]


def submission_parameters(new: Submission) -> tuple[Any, ...]:
    """In the order of wakeful.submit_v1. Raises InvalidPayload."""
    parent = new.parent
    actor = Actor("user", str(new.scope.principal_id))
    return (
        new.scope.tenant_id,
        new.session_id,
        new.scope.principal_id,
        new.run_id,
        new.agent,
        str(new.agent_version),
        str(int(new.priority)),
        new.scheduled_for,
        new.deadline,
        json_text(asdict(new.budget)),
        json_text(new.metadata),
        parent.run_id if parent else None,
        parent.session_id if parent else None,
        new.parent_invocation_id,
        new.trace_id,
        new.key,
        new.request_hash,
        new.key_kept,
        json_text([_event(new, number, payload) for number, payload in enumerate(_payloads(new))]),
        actor.type,
        actor.id,
    )


def submitted_of(new: Submission, row: Sequence[Any]) -> Submitted:
    """The row that wakeful.submit_v1 returns."""
    run_id, session_id, created = row
    return Submitted(RunRef(new.scope.tenant_id, session_id, run_id), created)


def _payloads(new: Submission) -> Iterator[Payload]:
    for message in new.messages:
        yield UserMessageReceived(role=message.role, content=message.content)
    yield RunQueued(
        agent=new.agent,
        agent_version=new.agent_version,
        priority=new.priority,
        messages=len(new.messages),
        parent_run_id=new.parent.run_id if new.parent else None,
    )


def _event(new: Submission, number: int, payload: Payload) -> dict[str, Any]:
    return {
        "event_id": derived_id("submission", new.run_id, number),
        "event_type": payload.TYPE,
        "version": payload.VERSION,
        "payload": payload,
    }

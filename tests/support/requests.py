"""Model requests, as a driver would make them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from wakeful.domain.models import ModelMessage, ModelRequest
from wakeful.domain.runs import Budget, Run
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import PriorityClass, RunStatus

NOBODY = UUID(int=0)
THEN = datetime(2026, 1, 1, tzinfo=UTC)


def a_run(**metadata: Any) -> Run:
    return Run(
        ref=RunRef(NOBODY, NOBODY, NOBODY),
        principal_id=NOBODY,
        agent="a",
        agent_version=1,
        status=RunStatus.RUNNING,
        priority=PriorityClass.INTERACTIVE,
        scheduled_for=None,
        deadline=None,
        budget=Budget(),
        step=0,
        tool_call_count=0,
        token_count=0,
        attempts=1,
        lease_owner=NOBODY,
        lease_epoch=1,
        lease_expires_at=None,
        lease_expirations=0,
        suspect=False,
        cancel_requested_at=None,
        parent=None,
        parent_invocation_id=None,
        result_delivered_at=None,
        failure=None,
        attempt_failures=(),
        metadata=metadata,
        trace_id=None,
        export_consent=False,
        created_at=THEN,
        started_at=THEN,
        finished_at=None,
        updated_at=THEN,
    )


def a_request(
    model: str = "m",
    *,
    step: int = 1,
    turn_index: int = 0,
    messages: tuple[ModelMessage, ...] = (),
    metadata: dict[str, Any] | None = None,
) -> ModelRequest:
    return ModelRequest(
        run=a_run(**(metadata or {})),
        agent="a",
        model=model,
        messages=messages,
        step=step,
        turn_index=turn_index,
    )

"""Runs: row to domain, domain to row. A row is a mapping by column name, whoever fetched it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wakeful.domain.content import Failure
from wakeful.domain.runs import Budget, Run, Submission
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import PriorityClass, RunStatus

__all__ = ["run_of", "run_values"]


def run_of(row: Mapping[str, Any]) -> Run:
    return Run(
        ref=RunRef(row["tenant_id"], row["session_id"], row["id"]),
        principal_id=row["principal_id"],
        agent=row["agent"],
        agent_version=row["agent_version"],
        status=RunStatus(row["status"]),
        priority=PriorityClass(row["priority"]),
        scheduled_for=row["scheduled_for"],
        deadline=row["deadline_at"],
        budget=_budget_of(row["budget"]),
        step=row["step"],
        tool_call_count=row["tool_call_count"],
        token_count=row["token_count"],
        attempts=row["attempts"],
        lease_owner=row["lease_owner"],
        lease_epoch=row["lease_epoch"],
        lease_expires_at=row["lease_expires_at"],
        lease_expirations=row["lease_expirations"],
        suspect=row["suspect"],
        cancel_requested_at=row["cancel_requested_at"],
        parent=_parent_of(row),
        parent_invocation_id=row["parent_invocation_id"],
        result_delivered_at=row["result_delivered_at"],
        failure=None if row["failure"] is None else Failure.model_validate(row["failure"]),
        attempt_failures=tuple(row["attempt_failures"]),
        metadata=row["metadata"],
        trace_id=row["trace_id"],
        export_consent=row["export_consent"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        updated_at=row["updated_at"],
    )


def run_values(new: Submission) -> dict[str, Any]:
    """What a submission decides; the database decides the times, the defaults the rest."""
    return {
        "tenant_id": new.scope.tenant_id,
        "id": new.run_id,
        "session_id": new.session_id,
        "principal_id": new.scope.principal_id,
        "agent": new.agent,
        "agent_version": new.agent_version,
        "status": RunStatus.QUEUED.value,
        "priority": int(new.priority),
        "scheduled_for": new.scheduled_for,
        "deadline_at": new.deadline,
        "budget": asdict(new.budget),
        "metadata": new.metadata,
        "parent_run_id": new.parent.run_id if new.parent else None,
        "parent_session_id": new.parent.session_id if new.parent else None,
        "parent_invocation_id": new.parent_invocation_id,
        "trace_id": new.trace_id,
    }


def _budget_of(value: Mapping[str, Any]) -> Budget:
    # An absent limit is no limit, not today's default.
    return Budget(value.get("max_steps"), value.get("max_tool_calls"), value.get("max_tokens"))


def _parent_of(row: Mapping[str, Any]) -> RunRef | None:
    if row["parent_run_id"] is None:
        return None
    return RunRef(row["tenant_id"], row["parent_session_id"], row["parent_run_id"])

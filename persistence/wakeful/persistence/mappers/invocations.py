"""Tool invocations: row to domain, domain to row. A row is a mapping by column name, whoever fetched it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wakeful.domain.invocations import Invocation, NewInvocation
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import IdempotencyClass, InvocationStatus

__all__ = ["invocation_of", "invocation_values"]


def invocation_of(row: Mapping[str, Any]) -> Invocation:
    return Invocation(
        id=row["id"],
        run=RunRef(row["tenant_id"], row["session_id"], row["run_id"]),
        origin=row["origin"],
        step=row["step"],
        position=row["position"],
        tool=row["tool"],
        arguments_hash=row["arguments_hash"],
        provider_call_id=row["provider_call_id"],
        idempotency_class=IdempotencyClass(row["idempotency_class"]),
        idempotency_key=row["idempotency_key"],
        status=InvocationStatus(row["status"]),
        epoch=row["epoch"],
        attempt=row["attempt"],
        approved_by=row["approved_by"],
        child_run_id=row["child_run_id"],
        child_session_id=row["child_session_id"],
        context_updates=row["context_updates"],
        expires_at=row["expires_at"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        resolved_at=row["resolved_at"],
    )


def invocation_values(new: NewInvocation, run: RunRef, at: datetime) -> dict[str, Any]:
    """`at` is the append's database time."""
    return {
        "tenant_id": run.tenant_id,
        "id": new.id,
        "session_id": run.session_id,
        "run_id": run.run_id,
        "origin": new.origin,
        "step": new.step,
        "position": new.position,
        "tool": new.tool,
        "arguments_hash": new.arguments_hash,
        "provider_call_id": new.provider_call_id,
        "idempotency_class": new.idempotency_class.value,
        "idempotency_key": new.idempotency_key,
        "status": new.status.value,
        "child_run_id": new.child_run_id,
        "child_session_id": new.child_session_id,
        "expires_at": None if new.expires_in is None else at + new.expires_in,
    }

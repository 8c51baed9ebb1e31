"""What each role may do, table by table: data for `provisioning`, and for whoever reviews it.

The owner of the tables runs migrations and serves nothing. `app` never updates or deletes events. `worker`
is granted columns by name, so a new column is invisible to it until somebody decides otherwise.
"""

__all__ = ["APP", "INFORMATION", "READONLY", "WORKER", "WORKER_FUNCTIONS"]

INFORMATION = ("alembic_version", "installation")
"""Read by every role: the revision and the mode."""

APP: dict[str, tuple[str, ...]] = {
    "tenants": ("SELECT", "INSERT", "UPDATE"),
    "sessions": ("SELECT", "INSERT", "UPDATE"),
    "events": ("SELECT", "INSERT"),
    "runs": ("SELECT", "INSERT", "UPDATE"),
    "tool_invocations": ("SELECT", "INSERT", "UPDATE"),
    "run_checkpoints": ("SELECT", "INSERT", "DELETE"),
    "idempotency_keys": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "projection_watermarks": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "projection_states": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "projection_documents": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "derived_event_keys": ("SELECT", "INSERT"),
    "export_consent": ("SELECT", "INSERT", "UPDATE"),
    "trajectory_exports": ("SELECT", "INSERT", "UPDATE"),
    "session_deletions": ("SELECT", "INSERT"),
    "session_deletion_artifacts": ("SELECT", "INSERT", "DELETE"),
    "artifacts": ("SELECT", "INSERT", "UPDATE", "DELETE"),
}

READONLY: tuple[str, ...] = tuple(APP)

_RUN_QUEUE = (
    "ctid",
    "tenant_id",
    "id",
    "session_id",
    "principal_id",
    "agent",
    "agent_version",
    "status",
    "priority",
    "scheduled_for",
    "due_at",
    "deadline_at",
    "step",
    "attempts",
    "lease_owner",
    "lease_epoch",
    "lease_expires_at",
    "lease_expirations",
    "suspect",
    "cancel_requested_at",
    "parent_run_id",
    "parent_session_id",
    "parent_invocation_id",
    "result_delivered_at",
    "created_at",
    "finished_at",
    "updated_at",
)

WORKER: dict[str, dict[str, tuple[str, ...] | None]] = {
    "runs": {
        "SELECT": _RUN_QUEUE,
        "UPDATE": ("status", "lease_owner", "lease_epoch", "lease_expires_at", "attempts", "updated_at"),
    },
    "tool_invocations": {"SELECT": ("tenant_id", "id", "run_id", "session_id", "status", "expires_at", "child_run_id")},
    "idempotency_keys": {"SELECT": ("tenant_id", "principal_id", "key", "run_id", "expires_at"), "DELETE": None},
    "projection_watermarks": {
        "SELECT": (
            "tenant_id",
            "projection_name",
            "scope",
            "generation",
            "watermark_seq",
            "builder_version",
            "updated_at",
        )
    },
    "projection_states": {
        "SELECT": ("tenant_id", "projection_name", "scope", "generation", "serving", "stopped_at", "updated_at")
    },
    "sessions": {"SELECT": ("tenant_id", "id", "principal_id", "next_event_sequence")},
    "artifacts": {"SELECT": ("tenant_id", "id", "session_id", "expires_at")},
    "session_deletions": {"SELECT": ("tenant_id", "session_id", "principal_id")},
    "session_deletion_artifacts": {"SELECT": ("tenant_id", "session_id", "artifact_id")},
    "sweep_ticks": {"SELECT": None, "INSERT": None, "UPDATE": None},
}
"""Per table and command the columns, None for the whole row (DELETE has no columns; sweep_ticks no tenant)."""

WORKER_FUNCTIONS: tuple[str, ...] = ()
"""Functions the worker may call, by name. `app` may call all of them."""

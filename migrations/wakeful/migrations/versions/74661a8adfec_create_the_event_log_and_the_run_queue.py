"""Create the event log, the run queue and what reads from them.

Every table that belongs to a tenant has `tenant_id` first in every key and forced row-level security;
a transaction sees the one tenant it has set in `wakeful.tenant`, the owner's transactions included.
What a worker may see across tenants depends on role names and is set up by `wakeful db upgrade`.
"""

from alembic import op

revision = "74661a8adfec"
down_revision = None
branch_labels = None
depends_on = None

data_revision = False

TENANTS_AND_SESSIONS = """
CREATE TABLE wakeful.installation (
    id smallint NOT NULL DEFAULT 1,
    mode text NOT NULL,
    role_prefix text NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_installation PRIMARY KEY (id),
    CONSTRAINT ck_installation_one_row CHECK (id = 1),
    CONSTRAINT ck_installation_mode CHECK (mode IN ('roles', 'single_role'))
);
CREATE TABLE wakeful.tenants (
    id uuid NOT NULL,
    name text,
    export_enabled boolean NOT NULL DEFAULT false,
    redaction_patterns jsonb NOT NULL DEFAULT '[]'::jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_tenants PRIMARY KEY (id),
    CONSTRAINT ck_tenants_redaction_patterns CHECK (jsonb_typeof(redaction_patterns) = 'array')
);
CREATE TABLE wakeful.sessions (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    principal_id uuid NOT NULL,
    agent text NOT NULL,
    title text,
    purpose text,
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    status text NOT NULL DEFAULT 'active',
    next_event_sequence bigint NOT NULL DEFAULT 1,
    last_event_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    CONSTRAINT pk_sessions PRIMARY KEY (tenant_id, id),
    CONSTRAINT fk_sessions_tenant_id_tenants FOREIGN KEY (tenant_id) REFERENCES wakeful.tenants (id),
    CONSTRAINT ck_sessions_status CHECK (status IN ('active', 'closed')),
    CONSTRAINT ck_sessions_metadata CHECK (jsonb_typeof(metadata) = 'object'),
    CONSTRAINT ck_sessions_next_event_sequence CHECK (next_event_sequence >= 1)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX ix_sessions_by_principal ON wakeful.sessions (tenant_id, principal_id, id);
CREATE UNIQUE INDEX uq_sessions_purpose ON wakeful.sessions (tenant_id, purpose) WHERE purpose IS NOT NULL;
"""

EVENTS = """
CREATE TABLE wakeful.events (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    sequence bigint NOT NULL,
    event_id uuid NOT NULL,
    run_id uuid,
    event_type text NOT NULL,
    payload_schema_version smallint NOT NULL,
    actor_type text NOT NULL,
    actor_id text,
    payload jsonb NOT NULL,
    trace_id text,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (tenant_id, session_id, sequence),
    CONSTRAINT uq_events_event_id UNIQUE (tenant_id, session_id, event_id),
    CONSTRAINT fk_events_session_id_sessions FOREIGN KEY (tenant_id, session_id)
        REFERENCES wakeful.sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_events_sequence CHECK (sequence >= 1),
    CONSTRAINT ck_events_payload_schema_version CHECK (payload_schema_version >= 1),
    CONSTRAINT ck_events_payload_object CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT ck_events_payload_bytes CHECK (pg_column_size(payload) <= 1048576)
);
CREATE FUNCTION wakeful.refuse_event_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $function$
BEGIN
    -- The cascade of a deleted session runs inside another trigger: that is how its rows leave.
    IF TG_OP = 'DELETE' AND pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'events are immutable: % on wakeful.events is refused', TG_OP
        USING ERRCODE = 'restrict_violation',
              HINT = 'Append a new event, or delete the whole session.';
END
$function$;
REVOKE ALL ON FUNCTION wakeful.refuse_event_change() FROM PUBLIC;
CREATE TRIGGER events_are_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON wakeful.events
    FOR EACH STATEMENT EXECUTE FUNCTION wakeful.refuse_event_change();
"""

RUNS = """
CREATE TABLE wakeful.runs (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    session_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    agent text NOT NULL,
    agent_version integer NOT NULL,
    status text NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    scheduled_for timestamptz,
    due_at timestamptz GENERATED ALWAYS AS (coalesce(scheduled_for, created_at)) STORED,
    budget jsonb NOT NULL DEFAULT '{}'::jsonb,
    deadline_at timestamptz,
    step integer NOT NULL DEFAULT 0,
    tool_call_count integer NOT NULL DEFAULT 0,
    token_count bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    lease_owner uuid,
    lease_epoch integer NOT NULL DEFAULT 0,
    lease_expires_at timestamptz,
    cancel_requested_at timestamptz,
    export_consent boolean NOT NULL DEFAULT false,
    parent_run_id uuid,
    parent_session_id uuid,
    parent_invocation_id uuid,
    result_delivered_at timestamptz,
    failure jsonb,
    attempt_failures jsonb NOT NULL DEFAULT '[]'::jsonb,
    metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
    trace_id text,
    started_at timestamptz,
    finished_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_runs PRIMARY KEY (tenant_id, id),
    CONSTRAINT fk_runs_session_id_sessions FOREIGN KEY (tenant_id, session_id)
        REFERENCES wakeful.sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_runs_status CHECK (status IN ('QUEUED', 'RUNNING', 'WAITING_INPUT', 'WAITING_APPROVAL',
        'WAITING_CHILD', 'COMPLETED', 'FAILED', 'CANCELLED')),
    CONSTRAINT ck_runs_priority CHECK (priority IN (0, 10, 20)),
    CONSTRAINT ck_runs_counters CHECK (step >= 0 AND tool_call_count >= 0 AND token_count >= 0
        AND attempts >= 0 AND lease_epoch >= 0),
    CONSTRAINT ck_runs_lease CHECK (status <> 'RUNNING'
        OR (lease_owner IS NOT NULL AND lease_expires_at IS NOT NULL)),
    CONSTRAINT ck_runs_parent CHECK (num_nonnulls(parent_run_id, parent_session_id) IN (0, 2)
        AND (parent_invocation_id IS NULL OR parent_run_id IS NOT NULL)),
    CONSTRAINT ck_runs_attempt_failures CHECK (jsonb_typeof(attempt_failures) = 'array')
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX uq_runs_active_in_session ON wakeful.runs (tenant_id, session_id)
    WHERE status IN ('QUEUED', 'RUNNING', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD');
CREATE INDEX ix_runs_queued ON wakeful.runs (priority, agent, due_at) WHERE status = 'QUEUED';
CREATE INDEX ix_runs_lease_expiry ON wakeful.runs (lease_expires_at) WHERE status = 'RUNNING';
CREATE INDEX ix_runs_lease_owner ON wakeful.runs (lease_owner) WHERE status = 'RUNNING';
CREATE INDEX ix_runs_deadline ON wakeful.runs (deadline_at) WHERE deadline_at IS NOT NULL
    AND status IN ('QUEUED', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD');
CREATE INDEX ix_runs_undelivered ON wakeful.runs (finished_at) WHERE parent_run_id IS NOT NULL
    AND result_delivered_at IS NULL AND status IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE INDEX ix_runs_parent ON wakeful.runs (tenant_id, parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX ix_runs_by_principal ON wakeful.runs (tenant_id, principal_id, created_at DESC, id);
CREATE INDEX ix_runs_by_session ON wakeful.runs (tenant_id, session_id, created_at);
"""

INVOCATIONS_AND_CHECKPOINTS = """
CREATE TABLE wakeful.tool_invocations (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    session_id uuid NOT NULL,
    run_id uuid NOT NULL,
    origin text NOT NULL DEFAULT 'model',
    step integer NOT NULL,
    position integer NOT NULL,
    tool text NOT NULL,
    arguments_hash text NOT NULL,
    provider_call_id text NOT NULL DEFAULT '',
    idempotency_class text NOT NULL,
    idempotency_key text NOT NULL,
    status text NOT NULL,
    epoch integer,
    attempt integer NOT NULL DEFAULT 0,
    approved_by text,
    child_run_id uuid,
    child_session_id uuid,
    context_updates jsonb,
    expires_at timestamptz,
    resolved_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_tool_invocations PRIMARY KEY (tenant_id, id),
    CONSTRAINT uq_tool_invocations_position UNIQUE (tenant_id, run_id, origin, step, position),
    CONSTRAINT fk_tool_invocations_run_id_runs FOREIGN KEY (tenant_id, run_id)
        REFERENCES wakeful.runs (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_tool_invocations_status CHECK (status IN ('REQUESTED', 'AWAITING_APPROVAL', 'AWAITING_INPUT',
        'AWAITING_CHILD', 'RUNNING', 'COMPLETED', 'FAILED', 'REFUSED', 'DENIED', 'CANCELLED', 'UNCERTAIN')),
    CONSTRAINT ck_tool_invocations_idempotency_class CHECK (idempotency_class IN ('read_only', 'idempotent',
        'conditionally_idempotent', 'non_idempotent')),
    CONSTRAINT ck_tool_invocations_counters CHECK (step >= 0 AND position >= 0 AND attempt >= 0),
    CONSTRAINT ck_tool_invocations_epoch CHECK (status <> 'RUNNING' OR epoch IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX ix_tool_invocations_open ON wakeful.tool_invocations (tenant_id, run_id)
    WHERE status IN ('REQUESTED', 'AWAITING_APPROVAL', 'AWAITING_INPUT', 'AWAITING_CHILD', 'RUNNING');
CREATE INDEX ix_tool_invocations_expiry ON wakeful.tool_invocations (expires_at)
    WHERE expires_at IS NOT NULL AND status IN ('AWAITING_APPROVAL', 'AWAITING_INPUT', 'AWAITING_CHILD');
CREATE INDEX ix_tool_invocations_child ON wakeful.tool_invocations (tenant_id, child_run_id)
    WHERE child_run_id IS NOT NULL;
CREATE TABLE wakeful.run_checkpoints (
    tenant_id uuid NOT NULL,
    run_id uuid NOT NULL,
    session_id uuid NOT NULL,
    number integer NOT NULL,
    epoch integer NOT NULL,
    kind text NOT NULL,
    base_number integer,
    trigger text NOT NULL,
    last_event_sequence bigint NOT NULL,
    state jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_run_checkpoints PRIMARY KEY (tenant_id, run_id, number),
    CONSTRAINT fk_run_checkpoints_run_id_runs FOREIGN KEY (tenant_id, run_id)
        REFERENCES wakeful.runs (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_run_checkpoints_kind CHECK (kind IN ('full', 'delta')),
    CONSTRAINT ck_run_checkpoints_base CHECK ((kind = 'full') = (base_number IS NULL)),
    CONSTRAINT ck_run_checkpoints_chain CHECK (base_number < number)
);
CREATE TABLE wakeful.idempotency_keys (
    tenant_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    key text NOT NULL,
    request_hash text NOT NULL,
    run_id uuid NOT NULL,
    session_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (tenant_id, principal_id, key)
);
CREATE INDEX ix_idempotency_keys_expiry ON wakeful.idempotency_keys (expires_at);
"""

PROJECTIONS_AND_EXPORTS = """
CREATE TABLE wakeful.projection_watermarks (
    tenant_id uuid NOT NULL,
    projection_name text NOT NULL,
    scope text NOT NULL DEFAULT '',
    watermark_seq bigint NOT NULL,
    builder_version text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_projection_watermarks PRIMARY KEY (tenant_id, projection_name, scope),
    CONSTRAINT ck_projection_watermarks_watermark_seq CHECK (watermark_seq >= 0)
) WITH (fillfactor = 80);
CREATE TABLE wakeful.derived_event_keys (
    tenant_id uuid NOT NULL,
    derivation_key text NOT NULL,
    session_id uuid NOT NULL,
    event_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_derived_event_keys PRIMARY KEY (tenant_id, derivation_key),
    CONSTRAINT fk_derived_event_keys_session_id_sessions FOREIGN KEY (tenant_id, session_id)
        REFERENCES wakeful.sessions (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX ix_derived_event_keys_session ON wakeful.derived_event_keys (tenant_id, session_id);
CREATE TABLE wakeful.export_consent (
    tenant_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    granted_at timestamptz NOT NULL,
    withdrawn_at timestamptz,
    CONSTRAINT pk_export_consent PRIMARY KEY (tenant_id, principal_id)
);
CREATE TABLE wakeful.trajectory_exports (
    tenant_id uuid NOT NULL,
    export_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    run_id uuid NOT NULL,
    artifact_id uuid NOT NULL,
    builder_version text NOT NULL,
    ruleset_version text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_trajectory_exports PRIMARY KEY (tenant_id, export_id),
    CONSTRAINT uq_trajectory_exports_run_id UNIQUE (tenant_id, run_id),
    CONSTRAINT fk_trajectory_exports_run_id_runs FOREIGN KEY (tenant_id, run_id)
        REFERENCES wakeful.runs (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX ix_trajectory_exports_by_principal ON wakeful.trajectory_exports (tenant_id, principal_id);
"""

DELETIONS_AND_ARTIFACTS = """
CREATE TABLE wakeful.session_deletions (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_session_deletions PRIMARY KEY (tenant_id, session_id)
);
CREATE INDEX ix_session_deletions_by_principal ON wakeful.session_deletions (tenant_id, principal_id, deleted_at);
CREATE TABLE wakeful.session_deletion_artifacts (
    tenant_id uuid NOT NULL,
    session_id uuid NOT NULL,
    artifact_id uuid NOT NULL,
    artifact jsonb NOT NULL,
    CONSTRAINT pk_session_deletion_artifacts PRIMARY KEY (tenant_id, session_id, artifact_id),
    CONSTRAINT fk_session_deletion_artifacts_session_id_session_deletions FOREIGN KEY (tenant_id, session_id)
        REFERENCES wakeful.session_deletions (tenant_id, session_id) ON DELETE CASCADE
);
CREATE TABLE wakeful.artifacts (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    session_id uuid NOT NULL,
    run_id uuid,
    origin text NOT NULL,
    trust text NOT NULL,
    media_type text NOT NULL,
    sha256 text NOT NULL,
    size_bytes bigint NOT NULL,
    storage_key text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    CONSTRAINT pk_artifacts PRIMARY KEY (tenant_id, id),
    CONSTRAINT fk_artifacts_session_id_sessions FOREIGN KEY (tenant_id, session_id)
        REFERENCES wakeful.sessions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_artifacts_sha256 CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT ck_artifacts_size_bytes CHECK (size_bytes >= 0)
);
CREATE INDEX ix_artifacts_session ON wakeful.artifacts (tenant_id, session_id);
CREATE INDEX ix_artifacts_expiry ON wakeful.artifacts (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE wakeful.sweep_ticks (
    sweep text NOT NULL,
    ticked_at timestamptz NOT NULL,
    owner uuid NOT NULL,
    CONSTRAINT pk_sweep_ticks PRIMARY KEY (sweep)
) WITH (fillfactor = 50);
"""

TENANT_TABLES = (
    "sessions",
    "events",
    "runs",
    "tool_invocations",
    "run_checkpoints",
    "idempotency_keys",
    "projection_watermarks",
    "derived_event_keys",
    "export_consent",
    "trajectory_exports",
    "session_deletions",
    "session_deletion_artifacts",
    "artifacts",
)

ONE_TENANT = "NULLIF(current_setting('wakeful.tenant', true), '')::uuid"
OWNER = "(SELECT tableowner FROM pg_catalog.pg_tables WHERE schemaname = 'wakeful' AND tablename = 'tenants')"


def _secure(table: str, column: str) -> None:
    op.execute(f"ALTER TABLE wakeful.{table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE wakeful.{table} FORCE ROW LEVEL SECURITY")
    mine = f"{column} = {ONE_TENANT}"
    op.execute(f"CREATE POLICY one_tenant ON wakeful.{table} USING ({mine}) WITH CHECK ({mine})")


def upgrade() -> None:
    op.execute(TENANTS_AND_SESSIONS)
    op.execute(EVENTS)
    op.execute(RUNS)
    op.execute(INVOCATIONS_AND_CHECKPOINTS)
    op.execute(PROJECTIONS_AND_EXPORTS)
    op.execute(DELETIONS_AND_ARTIFACTS)
    _secure("tenants", "id")
    for table in TENANT_TABLES:
        _secure(table, "tenant_id")
    # A data revision has to know which tenants there are; see wakeful.migrations.tenants.
    op.execute(
        "CREATE POLICY listed_by_owner ON wakeful.tenants FOR SELECT "
        f"USING (current_setting('wakeful.scope', true) = 'migrations' AND current_user = {OWNER})"
    )


def downgrade() -> None:
    for table in ("sweep_ticks", *reversed(TENANT_TABLES), "tenants", "installation"):
        op.execute(f"DROP TABLE wakeful.{table}")
    op.execute("DROP FUNCTION wakeful.refuse_event_change()")

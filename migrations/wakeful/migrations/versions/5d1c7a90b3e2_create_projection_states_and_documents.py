"""Keep projection states: documents, the generation that is served, and why one does not move.

A watermark belongs to a session and goes with it. Every state has generations, so that a rebuild stands beside what
is read until it is swapped in.
"""

from alembic import op

from wakeful.migrations.functions import load_function

revision = "5d1c7a90b3e2"
down_revision = "b7e40d95c1a8"
branch_labels = None
depends_on = None

data_revision = False

# Nothing has written a watermark before this revision.
WATERMARKS = """
ALTER TABLE wakeful.projection_watermarks
    DROP CONSTRAINT pk_projection_watermarks,
    ALTER COLUMN scope DROP DEFAULT,
    ALTER COLUMN scope TYPE uuid USING scope::uuid,
    ALTER COLUMN builder_version TYPE integer USING builder_version::integer,
    ADD COLUMN generation integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT pk_projection_watermarks PRIMARY KEY (tenant_id, scope, projection_name, generation),
    ADD CONSTRAINT fk_projection_watermarks_scope_sessions FOREIGN KEY (tenant_id, scope)
        REFERENCES wakeful.sessions (tenant_id, id) ON DELETE CASCADE
"""

STATES = """
CREATE TABLE wakeful.projection_states (
    tenant_id uuid NOT NULL,
    scope uuid NOT NULL,
    projection_name text NOT NULL,
    generation integer NOT NULL,
    serving boolean NOT NULL,
    revision bigint NOT NULL DEFAULT 0,
    builder_version integer,
    last_created_at timestamptz,
    last_session_id uuid,
    last_sequence bigint,
    stopped_session_id uuid,
    stopped_sequence bigint,
    stopped_reason text,
    stopped_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_projection_states PRIMARY KEY (tenant_id, scope, projection_name, generation)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX uq_projection_states_serving
    ON wakeful.projection_states (tenant_id, scope, projection_name) WHERE serving;
CREATE TABLE wakeful.projection_documents (
    tenant_id uuid NOT NULL,
    scope uuid NOT NULL,
    projection_name text NOT NULL,
    generation integer NOT NULL,
    key text NOT NULL,
    position bigint NOT NULL,
    session_id uuid NOT NULL,
    body jsonb NOT NULL,
    CONSTRAINT pk_projection_documents PRIMARY KEY (tenant_id, scope, projection_name, generation, key),
    CONSTRAINT fk_projection_documents_session_id_sessions FOREIGN KEY (tenant_id, session_id)
        REFERENCES wakeful.sessions (tenant_id, id) ON DELETE CASCADE
) WITH (fillfactor = 90);
CREATE INDEX ix_projection_documents_session
    ON wakeful.projection_documents (tenant_id, session_id, projection_name, generation, position)
"""

FUNCTIONS = ("move_projection_v1", "projection_lock_v1")

ONE_TENANT = "tenant_id = NULLIF(current_setting('wakeful.tenant', true), '')::uuid"


def upgrade() -> None:
    op.execute(WATERMARKS)
    op.execute(STATES)
    for table in ("projection_states", "projection_documents"):
        op.execute(f"ALTER TABLE wakeful.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE wakeful.{table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY one_tenant ON wakeful.{table} USING ({ONE_TENANT}) WITH CHECK ({ONE_TENANT})")
    op.execute(load_function("move_projection_v1.sql"))
    for name in FUNCTIONS:
        op.execute(f"REVOKE ALL ON FUNCTION wakeful.{name} FROM PUBLIC")


def downgrade() -> None:
    for name in FUNCTIONS:
        op.execute(f"DROP FUNCTION wakeful.{name}")
    op.execute("DROP TABLE wakeful.projection_documents, wakeful.projection_states")
    op.execute(
        """
        ALTER TABLE wakeful.projection_watermarks
            DROP CONSTRAINT fk_projection_watermarks_scope_sessions,
            DROP CONSTRAINT pk_projection_watermarks,
            DROP COLUMN generation,
            ALTER COLUMN builder_version TYPE text,
            ALTER COLUMN scope TYPE text,
            ALTER COLUMN scope SET DEFAULT '',
            ADD CONSTRAINT pk_projection_watermarks PRIMARY KEY (tenant_id, projection_name, scope)
        """
    )

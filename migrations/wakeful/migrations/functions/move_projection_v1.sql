-- The advisory lock that stands for all generations of a state.
CREATE FUNCTION wakeful.projection_lock_v1(p_tenant uuid, p_scope uuid, p_name text) RETURNS bigint
LANGUAGE sql IMMUTABLE SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
RETURN hashtextextended(p_tenant::text || p_scope::text || p_name, 0);

-- Move one state of a projection past events it has folded: documents, derived events and watermark, or nothing.
--
-- Locks, in this order: the session's row (only to derive events), derivation keys in their order, the state (shared:
-- only who drops generations keeps others out), the principal's revision, the session's watermark, documents. What was
-- read is compared before anything of the state is written.
--
-- Refusal (SQLSTATE): WK020 the watermark, the revision or the session is not what was read. A foreign key that finds
-- no session, and a second first row of a state, mean the same to the caller.
CREATE FUNCTION wakeful.move_projection_v1(
    p_tenant uuid,
    p_scope uuid,
    p_name text,
    p_generation integer,
    p_version integer,
    p_session uuid,
    -- the watermark as it was read, NULL where there was none, and as it shall be
    p_mark bigint,
    p_through bigint,
    -- of a principal's state, else NULL: the revision as it was read, and the last event folded
    p_revision bigint,
    p_last_created_at timestamptz,
    p_last_session uuid,
    p_last_sequence bigint,
    -- [{key, position, session_id, body}], and the keys of those that are gone
    p_documents jsonb,
    p_gone text[],
    -- [{key, event_id, run_id, event_type, version, actor_type, actor_id, payload, active}]
    p_derived jsonb,
    p_clears_stop boolean
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    v_tenant_before text := coalesce(current_setting('wakeful.tenant', true), '');
    v_new text[];
    v_first bigint;
    v_at timestamptz;
BEGIN
    PERFORM set_config('wakeful.tenant', p_tenant::text, true);

    IF p_derived IS NOT NULL THEN
        SELECT next_event_sequence, last_event_at INTO v_first, v_at
          FROM wakeful.sessions WHERE tenant_id = p_tenant AND id = p_session FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the session does not exist' USING ERRCODE = 'WK020';
        END IF;
        v_at := greatest(clock_timestamp(), v_at);
        -- In the order of the keys: two sessions may derive the same ones at once.
        WITH fresh AS (
            INSERT INTO wakeful.derived_event_keys (tenant_id, derivation_key, session_id, event_id, created_at)
            SELECT p_tenant, d.key, p_session, d.event_id, v_at
              FROM jsonb_to_recordset(p_derived) AS d(key text, event_id uuid)
             ORDER BY d.key
            ON CONFLICT (tenant_id, derivation_key) DO NOTHING
            RETURNING derivation_key)
        SELECT array_agg(derivation_key) INTO v_new FROM fresh;
        IF v_new IS NOT NULL THEN
            INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, run_id, event_type,
                   payload_schema_version, actor_type, actor_id, payload, created_at)
            SELECT p_tenant, p_session, v_first + row_number() OVER (ORDER BY d.ordinality) - 1, d.event_id, d.run_id,
                   d.event_type, d.version, d.actor_type, d.actor_id, d.payload, v_at
              FROM ROWS FROM (jsonb_to_recordset(p_derived) AS (key text, event_id uuid, run_id uuid, event_type text,
                   version smallint, actor_type text, actor_id text, payload jsonb)) WITH ORDINALITY AS d
             WHERE d.key = ANY (v_new);
            UPDATE wakeful.sessions
               SET next_event_sequence = v_first + array_length(v_new, 1),
                   last_event_at = v_at,
                   updated_at = CASE WHEN EXISTS (SELECT FROM jsonb_to_recordset(p_derived) AS d(key text,
                                                         active boolean) WHERE d.active AND d.key = ANY (v_new))
                                     THEN greatest(updated_at, v_at) ELSE updated_at END
             WHERE tenant_id = p_tenant AND id = p_session;
        END IF;
    END IF;

    PERFORM pg_advisory_xact_lock_shared(wakeful.projection_lock_v1(p_tenant, p_scope, p_name));
    IF p_revision IS NOT NULL THEN
        UPDATE wakeful.projection_states
           SET revision = revision + 1, builder_version = p_version, last_created_at = p_last_created_at,
               last_session_id = p_last_session, last_sequence = p_last_sequence, updated_at = clock_timestamp()
         WHERE tenant_id = p_tenant AND scope = p_scope AND projection_name = p_name AND generation = p_generation
           AND revision = p_revision;
        IF NOT FOUND AND p_revision = 0 THEN
            INSERT INTO wakeful.projection_states (tenant_id, scope, projection_name, generation, serving, revision,
                   builder_version, last_created_at, last_session_id, last_sequence)
            VALUES (p_tenant, p_scope, p_name, p_generation,
                   p_generation = 0 AND NOT EXISTS (
                       SELECT FROM wakeful.projection_states
                        WHERE tenant_id = p_tenant AND scope = p_scope AND projection_name = p_name AND serving),
                   1, p_version, p_last_created_at, p_last_session, p_last_sequence)
            ON CONFLICT ON CONSTRAINT pk_projection_states DO NOTHING;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the revision has moved' USING ERRCODE = 'WK020';
        END IF;
    END IF;

    IF p_mark IS NULL THEN
        INSERT INTO wakeful.projection_watermarks (tenant_id, scope, projection_name, generation, watermark_seq,
               builder_version)
        VALUES (p_tenant, p_session, p_name, p_generation, p_through, p_version)
        ON CONFLICT ON CONSTRAINT pk_projection_watermarks DO NOTHING;
    ELSE
        UPDATE wakeful.projection_watermarks
           SET watermark_seq = p_through, updated_at = clock_timestamp()
         WHERE tenant_id = p_tenant AND scope = p_session AND projection_name = p_name AND generation = p_generation
           AND watermark_seq = p_mark AND builder_version = p_version;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the watermark has moved' USING ERRCODE = 'WK020';
    END IF;

    IF p_documents IS NOT NULL THEN
        INSERT INTO wakeful.projection_documents AS old (tenant_id, scope, projection_name, generation, key, position,
               session_id, body)
        SELECT p_tenant, p_scope, p_name, p_generation, d.key, d.position, d.session_id, d.body
          FROM jsonb_to_recordset(p_documents) AS d(key text, position bigint, session_id uuid, body jsonb)
        ON CONFLICT ON CONSTRAINT pk_projection_documents
        DO UPDATE SET position = excluded.position, session_id = excluded.session_id, body = excluded.body;
    END IF;
    IF p_gone IS NOT NULL THEN
        DELETE FROM wakeful.projection_documents
         WHERE tenant_id = p_tenant AND scope = p_scope AND projection_name = p_name AND generation = p_generation
           AND key = ANY (p_gone);
    END IF;
    IF p_clears_stop THEN
        UPDATE wakeful.projection_states
           SET stopped_session_id = NULL, stopped_sequence = NULL, stopped_reason = NULL, stopped_at = NULL
         WHERE tenant_id = p_tenant AND scope = p_scope AND projection_name = p_name AND stopped_at IS NOT NULL;
    END IF;
    PERFORM set_config('wakeful.tenant', v_tenant_before, true);
END
$function$;

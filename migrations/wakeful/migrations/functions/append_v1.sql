-- Append events to one session and apply the state change they describe: all of it or nothing.
--
-- Locks, in this order: the session's row, the run's row, its invocations. Time is taken once the session is locked,
-- so it never lies before an event that committed earlier.
--
-- The tenant is set inside and set back before returning (an error rolls it back), so that nothing of it remains in a
-- caller's transaction. A SET clause would do it, but PostgreSQL lets only superusers write one for such a setting.
--
-- Refusals (SQLSTATE): WK001 the lease is not current; WK002 not what the open calls call for; WK003 cancel was
-- asked; WK004 a call is in no expected status (DETAIL: its id); WK006 no such session; WK008 another tool or other
-- arguments stand at a position (DETAIL: the call's id); WK010 calls left without a result at a terminal status.
-- An event id that is there already violates uq_events_event_id. Whoever is refused looks its ids up
-- (wakeful.repeated_v1): an append that was committed before is a success. That costs the rare case a round trip,
-- and the ordinary one no look-up.
CREATE FUNCTION wakeful.append_v1(
    p_tenant uuid,
    p_session uuid,
    p_activity boolean,
    -- the first event
    p_event uuid,
    p_run uuid,
    p_type text,
    p_version smallint,
    p_actor_type text,
    p_actor_id text,
    p_payload jsonb,
    p_trace text,
    -- the others, NULL for none: [{event_id, run_id, event_type, version, actor_type, actor_id, payload, trace_id}]
    p_more jsonb,
    -- the lease, NULL without one
    p_holder_run uuid,
    p_owner uuid,
    p_epoch integer,
    -- the run's change, NULL for what stays
    p_status text,
    p_started boolean,
    p_step integer,
    p_tool_calls integer,
    p_tokens bigint,
    p_failure jsonb,
    p_delay interval,
    -- [{id, origin, step, position, tool, arguments_hash, provider_call_id, idempotency_class, idempotency_key,
    --   status, expires_in, child_run_id, child_session_id}]
    p_proposals jsonb,
    -- [{id, status, expected: [...], epoch, context_updates, approved_by}]
    p_changes jsonb,
    p_checkpoint_trigger text,
    p_checkpoint_through bigint,
    p_checkpoint_state jsonb,
    -- the checkpoint that a delta builds on, and what changed since; NULL for a full one
    p_checkpoint_base integer,
    p_checkpoint_changes jsonb,
    OUT first_sequence bigint,
    OUT last_sequence bigint,
    OUT at timestamptz,
    OUT cancel_requested boolean,
    OUT checkpoint_number integer
)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    v_tenant_before text := coalesce(current_setting('wakeful.tenant', true), '');
    v_events integer := 1 + coalesce(jsonb_array_length(p_more), 0);
    v_change record;
    v_open record;
    v_wanted text;
    v_consent boolean;
    v_call uuid;
    v_delta boolean;
BEGIN
    PERFORM set_config('wakeful.tenant', p_tenant::text, true);

    -- Locked before the time is taken: an expression of the UPDATE itself would be evaluated before the wait.
    SELECT next_event_sequence, next_event_sequence + v_events - 1, greatest(clock_timestamp(), last_event_at)
      INTO first_sequence, last_sequence, at
      FROM wakeful.sessions
     WHERE tenant_id = p_tenant AND id = p_session
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session does not exist' USING ERRCODE = 'WK006';
    END IF;
    -- The select above computes before it waits as well; what it read is right, the time may be too early.
    at := greatest(clock_timestamp(), at);
    UPDATE wakeful.sessions
       SET next_event_sequence = last_sequence + 1,
           last_event_at = at,
           updated_at = CASE WHEN p_activity THEN greatest(updated_at, at) ELSE updated_at END
     WHERE tenant_id = p_tenant AND id = p_session;

    IF p_holder_run IS NOT NULL THEN
        IF p_started THEN
            -- A child inherits its parent's stamp; else the tenant exports and the principal's grant stands.
            SELECT CASE WHEN r.parent_run_id IS NOT NULL THEN coalesce(parent.export_consent, false)
                        ELSE t.export_enabled AND c.granted_at IS NOT NULL
                             AND (c.withdrawn_at IS NULL OR c.withdrawn_at < c.granted_at) END
              INTO v_consent
              FROM wakeful.runs AS r
              JOIN wakeful.tenants AS t ON t.id = r.tenant_id
              LEFT JOIN wakeful.export_consent AS c
                ON c.tenant_id = r.tenant_id AND c.principal_id = r.principal_id
              LEFT JOIN wakeful.runs AS parent
                ON parent.tenant_id = r.tenant_id AND parent.id = r.parent_run_id
             WHERE r.tenant_id = p_tenant AND r.id = p_holder_run;
        END IF;
        IF num_nonnulls(p_status, p_step, p_tool_calls, p_tokens, p_failure) = 0 AND p_started IS NOT TRUE THEN
            -- Nothing of the run changes: a lock keeps sweep, claim and cancel out until COMMIT as well as an UPDATE
            -- does, for a third of its time.
            SELECT cancel_requested_at IS NOT NULL
              INTO cancel_requested
              FROM wakeful.runs
             WHERE tenant_id = p_tenant AND id = p_holder_run AND session_id = p_session
               AND lease_owner = p_owner AND lease_epoch = p_epoch AND status = 'RUNNING'
               FOR NO KEY UPDATE;
        ELSE
            UPDATE wakeful.runs
               SET status = coalesce(p_status, status),
                   started_at = CASE WHEN p_started THEN coalesce(started_at, at) ELSE started_at END,
                   export_consent = CASE WHEN p_started AND started_at IS NULL THEN v_consent
                                         ELSE export_consent END,
                   step = greatest(step, p_step),
                   suspect = suspect AND p_step IS NULL,
                   tool_call_count = greatest(tool_call_count, p_tool_calls),
                   token_count = token_count + coalesce(p_tokens, 0),
                   failure = coalesce(p_failure, failure),
                   scheduled_for = CASE WHEN p_status = 'QUEUED' AND p_delay IS NOT NULL THEN at + p_delay
                                        ELSE scheduled_for END,
                   lease_owner = CASE WHEN p_status IS NULL THEN lease_owner END,
                   lease_expires_at = CASE WHEN p_status IS NULL THEN lease_expires_at END,
                   finished_at = CASE WHEN p_status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN at
                                      ELSE finished_at END,
                   updated_at = at
             WHERE tenant_id = p_tenant AND id = p_holder_run AND session_id = p_session
               AND lease_owner = p_owner AND lease_epoch = p_epoch AND status = 'RUNNING'
            RETURNING cancel_requested_at IS NOT NULL INTO cancel_requested;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the lease is not current' USING ERRCODE = 'WK001';
        END IF;
        IF cancel_requested AND p_status IN ('QUEUED', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD') THEN
            RAISE EXCEPTION 'the run was asked to end' USING ERRCODE = 'WK003';
        END IF;
    END IF;

    IF p_proposals IS NOT NULL THEN
        INSERT INTO wakeful.tool_invocations (tenant_id, id, session_id, run_id, origin, step, position, tool,
               arguments_hash, provider_call_id, idempotency_class, idempotency_key, status, expires_at,
               child_run_id, child_session_id, finished_at, created_at, updated_at)
        SELECT p_tenant, p.id, p_session, p_holder_run, p.origin, p.step, p.position, p.tool, p.arguments_hash,
               p.provider_call_id, p.idempotency_class, p.idempotency_key, p.status, at + p.expires_in, p.child_run_id,
               p.child_session_id,
               CASE WHEN p.status IN ('COMPLETED', 'FAILED', 'REFUSED', 'DENIED', 'CANCELLED', 'UNCERTAIN')
                    THEN at END,
               at, at
          FROM jsonb_to_recordset(p_proposals) AS p(id uuid, origin text, step integer, position integer,
               tool text, arguments_hash text, provider_call_id text, idempotency_class text, idempotency_key text,
               status text, expires_in interval, child_run_id uuid, child_session_id uuid)
        ON CONFLICT DO NOTHING;
        -- An equal row may stand there already; a different one is an error, never a second row.
        SELECT p.id INTO v_call
          FROM jsonb_to_recordset(p_proposals) AS p(id uuid, origin text, step integer, position integer,
               tool text, arguments_hash text)
          JOIN wakeful.tool_invocations AS i
            ON i.tenant_id = p_tenant AND i.run_id = p_holder_run AND i.origin = p.origin
               AND i.step = p.step AND i.position = p.position
         WHERE (i.id, i.tool, i.arguments_hash) IS DISTINCT FROM (p.id, p.tool, p.arguments_hash)
         LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'another call stands at this position' USING ERRCODE = 'WK008', DETAIL = v_call::text;
        END IF;
    END IF;

    IF p_changes IS NOT NULL THEN
        FOR v_change IN
            SELECT c.id, c.status, c.expected, c.epoch, c.context_updates, c.approved_by
              FROM jsonb_to_recordset(p_changes) AS c(id uuid, status text, expected text[], epoch integer,
                   context_updates jsonb, approved_by text)
        LOOP
            UPDATE wakeful.tool_invocations
               SET status = v_change.status,
                   epoch = coalesce(v_change.epoch, epoch),
                   attempt = attempt + CASE WHEN v_change.status = 'RUNNING' THEN 1 ELSE 0 END,
                   started_at = CASE WHEN v_change.status = 'RUNNING' THEN coalesce(started_at, at) ELSE started_at END,
                   finished_at = CASE WHEN v_change.status IN ('COMPLETED', 'FAILED', 'REFUSED', 'DENIED',
                                                               'CANCELLED', 'UNCERTAIN') THEN at END,
                   context_updates = coalesce(v_change.context_updates, context_updates),
                   approved_by = coalesce(v_change.approved_by, approved_by),
                   updated_at = at
             WHERE tenant_id = p_tenant AND id = v_change.id AND run_id = p_holder_run
               AND status = ANY (v_change.expected);
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the call is in no expected status'
                    USING ERRCODE = 'WK004', DETAIL = v_change.id::text;
            END IF;
        END LOOP;
    END IF;

    IF p_status IS NOT NULL AND p_status <> 'QUEUED' THEN
        SELECT coalesce(bool_or(status IN ('REQUESTED', 'RUNNING')), false) AS runnable,
               coalesce(bool_or(status = 'AWAITING_APPROVAL'), false) AS approval,
               coalesce(bool_or(status = 'AWAITING_INPUT'), false) AS input,
               coalesce(bool_or(status = 'AWAITING_CHILD'), false) AS child
          INTO v_open
          FROM wakeful.tool_invocations
         WHERE tenant_id = p_tenant AND run_id = p_holder_run
           AND status IN ('REQUESTED', 'AWAITING_APPROVAL', 'AWAITING_INPUT', 'AWAITING_CHILD', 'RUNNING');
        v_wanted := CASE WHEN v_open.runnable THEN NULL
                         WHEN v_open.approval THEN 'WAITING_APPROVAL'
                         WHEN v_open.input THEN 'WAITING_INPUT'
                         WHEN v_open.child THEN 'WAITING_CHILD' END;
        IF p_status IN ('WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD') THEN
            IF p_status IS DISTINCT FROM v_wanted THEN
                RAISE EXCEPTION 'the open calls do not call for %', p_status USING ERRCODE = 'WK002';
            END IF;
        ELSIF v_open.runnable OR v_wanted IS NOT NULL THEN
            RAISE EXCEPTION 'calls are left without a result at %', p_status USING ERRCODE = 'WK010';
        END IF;
    END IF;

    INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, run_id, event_type,
           payload_schema_version, actor_type, actor_id, payload, trace_id, created_at)
    VALUES (p_tenant, p_session, first_sequence, p_event, p_run, p_type, p_version, p_actor_type, p_actor_id,
           p_payload, p_trace, at);
    IF p_more IS NOT NULL THEN
        INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, run_id, event_type,
               payload_schema_version, actor_type, actor_id, payload, trace_id, created_at)
        SELECT p_tenant, p_session, first_sequence + e.ordinality, e.event_id, e.run_id, e.event_type, e.version,
               e.actor_type, e.actor_id, e.payload, e.trace_id, at
          FROM ROWS FROM (jsonb_to_recordset(p_more) AS (event_id uuid, run_id uuid, event_type text,
               version smallint, actor_type text, actor_id text, payload jsonb, trace_id text))
               WITH ORDINALITY AS e
         ORDER BY e.ordinality;
    END IF;

    IF p_checkpoint_trigger IS NOT NULL THEN
        -- A delta only on the newest one, else full: a base that is gone, or that another chain has passed, is none.
        SELECT c.number INTO checkpoint_number
          FROM wakeful.run_checkpoints AS c
         WHERE c.tenant_id = p_tenant AND c.run_id = p_holder_run
         ORDER BY c.number DESC LIMIT 1;
        v_delta := coalesce(checkpoint_number = p_checkpoint_base, false);
        checkpoint_number := coalesce(checkpoint_number, 0) + 1;
        INSERT INTO wakeful.run_checkpoints (tenant_id, run_id, session_id, number, epoch, kind, base_number, trigger,
               last_event_sequence, state, created_at)
        VALUES (p_tenant, p_holder_run, p_session, checkpoint_number, p_epoch,
                CASE WHEN v_delta THEN 'delta' ELSE 'full' END, CASE WHEN v_delta THEN p_checkpoint_base END,
                p_checkpoint_trigger, coalesce(p_checkpoint_through, last_sequence),
                CASE WHEN v_delta THEN p_checkpoint_changes ELSE p_checkpoint_state END, at);
        IF NOT v_delta AND checkpoint_number > 1 THEN
            -- Pruned in the transaction that makes them useless and under its lease: a pass of its own would judge
            -- by a checkpoint that may be gone, or not yet committed, when it deletes.
            DELETE FROM wakeful.run_checkpoints AS c
             WHERE c.tenant_id = p_tenant AND c.run_id = p_holder_run AND c.number < checkpoint_number;
        END IF;
    END IF;
    PERFORM set_config('wakeful.tenant', v_tenant_before, true);
END
$function$;

-- Where the events of an append stand that may have been committed before; no row for those that do not.
-- `cancel_requested` is that of the holder's run as it is now.
CREATE FUNCTION wakeful.repeated_v1(p_tenant uuid, p_session uuid, p_events uuid[], p_holder_run uuid)
RETURNS TABLE (event_id uuid, sequence bigint, created_at timestamptz, event_type text, actor_type text, actor_id text,
               cancel_requested boolean)
LANGUAGE plpgsql STABLE SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    v_tenant_before text := coalesce(current_setting('wakeful.tenant', true), '');
BEGIN
    PERFORM set_config('wakeful.tenant', p_tenant::text, true);
    RETURN QUERY
        SELECT e.event_id, e.sequence, e.created_at, e.event_type, e.actor_type, e.actor_id,
               EXISTS (SELECT FROM wakeful.runs AS r
                        WHERE r.tenant_id = p_tenant AND r.id = p_holder_run AND r.cancel_requested_at IS NOT NULL)
          FROM wakeful.events AS e
         WHERE e.tenant_id = p_tenant AND e.session_id = p_session AND e.event_id = ANY (p_events)
         ORDER BY e.sequence;
    PERFORM set_config('wakeful.tenant', v_tenant_before, true);
END
$function$;

-- The committed events of a session after a sequence, in order. It takes no lock and waits for nobody.
CREATE FUNCTION wakeful.read_events_v1(p_tenant uuid, p_session uuid, p_after bigint, p_limit integer, p_types text[])
RETURNS TABLE (sequence bigint, event_id uuid, run_id uuid, event_type text, payload_schema_version smallint,
               actor_type text, actor_id text, payload jsonb, trace_id text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    v_tenant_before text := coalesce(current_setting('wakeful.tenant', true), '');
BEGIN
    PERFORM set_config('wakeful.tenant', p_tenant::text, true);
    RETURN QUERY
        SELECT e.sequence, e.event_id, e.run_id, e.event_type, e.payload_schema_version, e.actor_type, e.actor_id,
               e.payload, e.trace_id, e.created_at
          FROM wakeful.events AS e
         WHERE e.tenant_id = p_tenant AND e.session_id = p_session AND e.sequence > p_after
           AND (p_types IS NULL OR e.event_type = ANY (p_types))
         ORDER BY e.sequence
         LIMIT p_limit;
    PERFORM set_config('wakeful.tenant', v_tenant_before, true);
END
$function$;

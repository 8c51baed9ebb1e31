-- Queue a run: idempotency key, run, messages and run.queued in one transaction and one round trip.
--
-- Locks, in this order: the session's row, then the key's. A key or a run id that is known already gives the run it
-- stands for, also while that run is active; with another request hash it is a conflict. Works in a caller's own
-- transaction too: what it sets for itself is gone when it returns, and a refusal leaves nothing behind.
--
-- Refusals (SQLSTATE): WK005 the session has an active run; WK006 no such session; WK007 it is closed; WK009 the key
-- was used with another request; WK012 the session, or the run id, is another principal's.
CREATE FUNCTION wakeful.submit_v1(
    p_tenant uuid,
    p_session uuid,
    p_principal uuid,
    p_run uuid,
    p_agent text,
    p_agent_version integer,
    p_priority smallint,
    p_scheduled_for timestamptz,
    p_deadline timestamptz,
    p_budget jsonb,
    p_metadata jsonb,
    p_parent_run uuid,
    p_parent_session uuid,
    p_parent_invocation uuid,
    p_trace text,
    p_key text,
    p_request_hash text,
    p_key_kept interval,
    -- [{event_id, event_type, version, payload}], the last one run.queued
    p_events jsonb,
    p_actor_type text,
    p_actor_id text,
    OUT run_id uuid,
    OUT session_id uuid,
    OUT created boolean
)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    v_tenant_before text := coalesce(current_setting('wakeful.tenant', true), '');
    v_first bigint;
    v_at timestamptz;
    v_principal uuid;
    v_status text;
    v_known record;
BEGIN
    PERFORM set_config('wakeful.tenant', p_tenant::text, true);
    created := false;

    SELECT s.principal_id, s.status, s.next_event_sequence, s.last_event_at
      INTO v_principal, v_status, v_first, v_at
      FROM wakeful.sessions AS s
     WHERE s.tenant_id = p_tenant AND s.id = p_session
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session does not exist' USING ERRCODE = 'WK006';
    ELSIF v_principal <> p_principal THEN
        RAISE EXCEPTION 'the session is another principal''s' USING ERRCODE = 'WK012';
    END IF;
    v_at := greatest(clock_timestamp(), v_at);

    -- The key before everything that may refuse: submitting again answers the same whatever became of the session.
    WHILE p_key IS NOT NULL LOOP
        SELECT k.run_id, k.session_id, k.request_hash,
               k.expires_at <= v_at AND coalesce(r.status IN ('COMPLETED', 'FAILED', 'CANCELLED'), true) AS expired
          INTO v_known
          FROM wakeful.idempotency_keys AS k
          LEFT JOIN wakeful.runs AS r ON r.tenant_id = k.tenant_id AND r.id = k.run_id
         WHERE k.tenant_id = p_tenant AND k.principal_id = p_principal AND k.key = p_key
           FOR NO KEY UPDATE OF k;
        IF NOT FOUND THEN
            -- Waits for another session's submit of the same key; whichever commits first is found the next time.
            INSERT INTO wakeful.idempotency_keys AS k (tenant_id, principal_id, key, request_hash, run_id,
                   session_id, created_at, expires_at)
            VALUES (p_tenant, p_principal, p_key, p_request_hash, p_run, p_session, v_at, v_at + p_key_kept)
            ON CONFLICT (tenant_id, principal_id, key) DO NOTHING;
            EXIT WHEN FOUND;
        ELSIF v_known.expired THEN
            DELETE FROM wakeful.idempotency_keys AS k
             WHERE k.tenant_id = p_tenant AND k.principal_id = p_principal AND k.key = p_key;
        ELSIF v_known.request_hash <> p_request_hash THEN
            RAISE EXCEPTION 'the key was used with another request' USING ERRCODE = 'WK009';
        ELSE
            run_id := v_known.run_id;
            session_id := v_known.session_id;
            PERFORM set_config('wakeful.tenant', v_tenant_before, true);
            RETURN;
        END IF;
    END LOOP;

    SELECT r.id, r.session_id, r.principal_id INTO v_known
      FROM wakeful.runs AS r
     WHERE r.tenant_id = p_tenant AND r.id = p_run;
    IF FOUND THEN
        IF v_known.principal_id <> p_principal OR v_known.session_id <> p_session THEN
            RAISE EXCEPTION 'the run id is taken' USING ERRCODE = 'WK012';
        ELSIF p_key IS NOT NULL THEN
            -- The key is new: it must not be kept for a run that another key, or none, stands for.
            DELETE FROM wakeful.idempotency_keys AS k
             WHERE k.tenant_id = p_tenant AND k.principal_id = p_principal AND k.key = p_key;
        END IF;
        run_id := v_known.id;
        session_id := v_known.session_id;
        PERFORM set_config('wakeful.tenant', v_tenant_before, true);
        RETURN;
    END IF;

    IF v_status = 'closed' THEN
        RAISE EXCEPTION 'the session is closed' USING ERRCODE = 'WK007';
    END IF;
    PERFORM FROM wakeful.runs AS r
      WHERE r.tenant_id = p_tenant AND r.session_id = p_session
        AND r.status IN ('QUEUED', 'RUNNING', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD');
    IF FOUND THEN
        RAISE EXCEPTION 'the session has an active run' USING ERRCODE = 'WK005';
    END IF;

    UPDATE wakeful.sessions AS s
       SET next_event_sequence = v_first + jsonb_array_length(p_events),
           last_event_at = v_at,
           updated_at = greatest(s.updated_at, v_at)
     WHERE s.tenant_id = p_tenant AND s.id = p_session;
    INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status, priority,
           scheduled_for, budget, deadline_at, parent_run_id, parent_session_id, parent_invocation_id, metadata,
           trace_id, created_at, updated_at)
    VALUES (p_tenant, p_run, p_session, p_principal, p_agent, p_agent_version, 'QUEUED', p_priority,
           p_scheduled_for, p_budget, p_deadline, p_parent_run, p_parent_session, p_parent_invocation, p_metadata,
           p_trace, v_at, v_at);
    INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, run_id, event_type,
           payload_schema_version, actor_type, actor_id, payload, trace_id, created_at)
    SELECT p_tenant, p_session, v_first + e.ordinality - 1, e.event_id, p_run, e.event_type, e.version,
           p_actor_type, p_actor_id, e.payload, p_trace, v_at
      FROM ROWS FROM (jsonb_to_recordset(p_events) AS (event_id uuid, event_type text, version smallint,
           payload jsonb)) WITH ORDINALITY AS e
     ORDER BY e.ordinality;
    run_id := p_run;
    session_id := p_session;
    created := true;
    PERFORM set_config('wakeful.tenant', v_tenant_before, true);
END
$function$;

-- One row in every table, for the tenant in wakeful.tenant. Only columns of the first revision are named,
-- so it runs at every one. Ids follow from the tenant and a word.
CREATE FUNCTION pg_temp.tenant() RETURNS uuid LANGUAGE sql AS
    $$ SELECT current_setting('wakeful.tenant')::uuid $$;
CREATE FUNCTION pg_temp.id(thing text) RETURNS uuid LANGUAGE sql AS
    $$ SELECT md5(current_setting('wakeful.tenant') || thing)::uuid $$;

INSERT INTO wakeful.tenants (id, name) VALUES (pg_temp.tenant(), 'sample');
INSERT INTO wakeful.sessions (tenant_id, id, principal_id, agent, next_event_sequence)
    VALUES (pg_temp.tenant(), pg_temp.id('session'), pg_temp.id('principal'), 'support', 2);
INSERT INTO wakeful.runs (tenant_id, id, session_id, principal_id, agent, agent_version, status)
    VALUES (pg_temp.tenant(), pg_temp.id('run'), pg_temp.id('session'), pg_temp.id('principal'), 'support', 1, 'QUEUED');
INSERT INTO wakeful.events (tenant_id, session_id, sequence, event_id, run_id, event_type, payload_schema_version,
                            actor_type, payload, created_at)
    VALUES (pg_temp.tenant(), pg_temp.id('session'), 1, pg_temp.id('event'), pg_temp.id('run'),
            'user.message.received', 1, 'user', '{"content": "secret words"}', clock_timestamp());
INSERT INTO wakeful.tool_invocations (tenant_id, id, session_id, run_id, step, position, tool, arguments_hash,
                                      idempotency_class, idempotency_key, status)
    VALUES (pg_temp.tenant(), pg_temp.id('call'), pg_temp.id('session'), pg_temp.id('run'), 1, 0, 'refund', 'hash',
            'non_idempotent', 'key', 'REQUESTED');
INSERT INTO wakeful.run_checkpoints (tenant_id, run_id, session_id, number, epoch, kind, trigger,
                                     last_event_sequence, state)
    VALUES (pg_temp.tenant(), pg_temp.id('run'), pg_temp.id('session'), 1, 1, 'full', 'start', 1, '{}');
INSERT INTO wakeful.idempotency_keys (tenant_id, principal_id, key, request_hash, run_id, session_id, expires_at)
    VALUES (pg_temp.tenant(), pg_temp.id('principal'), 'ticket', 'hash', pg_temp.id('run'), pg_temp.id('session'),
            clock_timestamp() + interval '1 day');
-- Literals, since the columns' types differ between revisions; what a later one adds only once it is there.
DO $$
BEGIN
    EXECUTE format('INSERT INTO wakeful.projection_watermarks (tenant_id, projection_name, scope, watermark_seq,
        builder_version) VALUES (%L, ''history'', %L, 1, ''1'')', pg_temp.tenant(), pg_temp.id('session'));
    IF to_regclass('wakeful.projection_states') IS NOT NULL THEN
        INSERT INTO wakeful.projection_states (tenant_id, scope, projection_name, generation, serving)
            VALUES (pg_temp.tenant(), pg_temp.id('session'), 'history', 0, true);
        INSERT INTO wakeful.projection_documents (tenant_id, scope, projection_name, generation, key, position,
                                                  session_id, body)
            VALUES (pg_temp.tenant(), pg_temp.id('session'), 'history', 0, '1', 1, pg_temp.id('session'), '[1]');
    END IF;
END $$;
INSERT INTO wakeful.derived_event_keys (tenant_id, derivation_key, session_id, event_id)
    VALUES (pg_temp.tenant(), 'derived', pg_temp.id('session'), pg_temp.id('event'));
INSERT INTO wakeful.export_consent (tenant_id, principal_id, granted_at)
    VALUES (pg_temp.tenant(), pg_temp.id('principal'), clock_timestamp());
INSERT INTO wakeful.trajectory_exports (tenant_id, export_id, principal_id, run_id, artifact_id, builder_version,
                                        ruleset_version)
    VALUES (pg_temp.tenant(), pg_temp.id('export'), pg_temp.id('principal'), pg_temp.id('run'),
            pg_temp.id('artifact'), '1', '1');
INSERT INTO wakeful.session_deletions (tenant_id, session_id, principal_id)
    VALUES (pg_temp.tenant(), pg_temp.id('deleted session'), pg_temp.id('principal'));
INSERT INTO wakeful.session_deletion_artifacts (tenant_id, session_id, artifact_id, artifact)
    VALUES (pg_temp.tenant(), pg_temp.id('deleted session'), pg_temp.id('deleted artifact'), '{}');
INSERT INTO wakeful.artifacts (tenant_id, id, session_id, origin, trust, media_type, sha256, size_bytes, storage_key)
    VALUES (pg_temp.tenant(), pg_temp.id('artifact'), pg_temp.id('session'), 'tool', 'low', 'text/plain',
            repeat('0', 64), 1, 'key');
INSERT INTO wakeful.sweep_ticks (sweep, ticked_at, owner)
    VALUES ('leases', clock_timestamp(), pg_temp.id('worker')) ON CONFLICT DO NOTHING;

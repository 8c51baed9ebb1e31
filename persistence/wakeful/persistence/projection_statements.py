"""The statements of the projection engine, beside `move_projection_v1`, which is a function.

A generation parameter of NULL means the one that is served: without any row, generation 0.
"""

__all__ = [
    "BEGIN",
    "BEHIND",
    "BEHIND_LATELY",
    "COMMIT",
    "DOCUMENTS",
    "DROP_OTHERS",
    "EVENTS_OF_PRINCIPAL",
    "EVENTS_OF_SESSION",
    "LAGGING",
    "LOCK",
    "MARKS",
    "MARKS_OF_PRINCIPAL",
    "MARKS_OF_SESSION",
    "MOVE",
    "OLDEST_UNSEEN",
    "PRINCIPALS",
    "SERVE",
    "SERVED",
    "SESSIONS",
    "STATE",
    "STOP",
    "STORED",
    "TENANT",
]

BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
COMMIT = b"COMMIT"
TENANT = b"SELECT set_config('wakeful.tenant', %(tenant)s, true)"

MOVE = b"SELECT wakeful.move_projection_v1(" + b", ".join([b"%s"] * 16) + b")"

STATE = b"""
SELECT generation, revision, builder_version, last_created_at, last_session_id, last_sequence,
       stopped_session_id, stopped_sequence, stopped_reason, stopped_at
  FROM wakeful.projection_states
 WHERE tenant_id = %(tenant)s AND scope = %(scope)s AND projection_name = %(name)s
   AND CASE WHEN %(generation)s::integer IS NULL THEN serving ELSE generation = %(generation)s::integer END
"""

_GENERATION = b"""
       coalesce(%(generation)s::integer, (SELECT st.generation FROM wakeful.projection_states AS st
                 WHERE st.tenant_id = %(tenant)s AND st.scope = %(scope)s AND st.projection_name = %(name)s
                   AND st.serving), 0)"""

_MARKS = (
    b"""
SELECT s.id, s.next_event_sequence - 1 AS last_sequence, w.watermark_seq, w.builder_version
  FROM wakeful.sessions AS s
  LEFT JOIN wakeful.projection_watermarks AS w
    ON w.tenant_id = s.tenant_id AND w.scope = s.id AND w.projection_name = %(name)s
       AND w.generation = """
    + _GENERATION
    + b"""
 WHERE s.tenant_id = %(tenant)s"""
)

MARKS = _MARKS + b" AND %(scope)s IN (s.id, s.principal_id) ORDER BY s.id"
MARKS_OF_SESSION = _MARKS + b" AND s.id = %(scope)s"
MARKS_OF_PRINCIPAL = (
    _MARKS
    + b"""
   AND s.principal_id = %(scope)s AND (w.watermark_seq IS NULL OR w.watermark_seq < s.next_event_sequence - 1)"""
)

EVENTS_OF_SESSION = (
    b"""
SELECT e.* FROM wakeful.events AS e
 WHERE e.tenant_id = %(tenant)s AND e.session_id = %(scope)s
   AND e.sequence > coalesce((SELECT w.watermark_seq FROM wakeful.projection_watermarks AS w
                               WHERE w.tenant_id = %(tenant)s AND w.scope = %(scope)s
                                 AND w.projection_name = %(name)s AND w.generation = """
    + _GENERATION
    + b"""), 0)
   AND (%(types)s::text[] IS NULL OR e.event_type = ANY (%(types)s::text[]))
 ORDER BY e.sequence LIMIT %(limit)s::integer
"""
)
EVENTS_OF_PRINCIPAL = (
    b"""
SELECT e.* FROM ("""
    + MARKS_OF_PRINCIPAL
    + b""") AS m
 CROSS JOIN LATERAL (
       SELECT e.* FROM wakeful.events AS e
        WHERE e.tenant_id = %(tenant)s AND e.session_id = m.id AND e.sequence > coalesce(m.watermark_seq, 0)
          AND (%(types)s::text[] IS NULL OR e.event_type = ANY (%(types)s::text[]))
        ORDER BY e.sequence LIMIT %(limit)s::integer) AS e
 ORDER BY e.created_at, e.session_id, e.sequence LIMIT %(limit)s::integer
"""
)

DOCUMENTS = b"""
SELECT d.key, d.position, d.session_id, d.body FROM wakeful.projection_documents AS d
 WHERE d.tenant_id = %(tenant)s AND d.scope = %(scope)s AND d.projection_name = %(name)s
   AND d.generation = %(generation)s::integer AND (%(keys)s::text[] IS NULL OR d.key = ANY (%(keys)s::text[]))
"""
STORED = (
    b"""
SELECT d.key, d.position, d.session_id, d.body FROM wakeful.projection_documents AS d
 WHERE d.tenant_id = %(tenant)s AND d.scope = %(scope)s AND d.projection_name = %(name)s
   AND d.generation = """
    + _GENERATION
    + b"""
 ORDER BY d.position, d.key COLLATE "C"
"""
)

# The reason stands with the generation that is served, whichever one met it: there operators look.
STOP = b"""
INSERT INTO wakeful.projection_states AS st (tenant_id, scope, projection_name, generation, serving,
       stopped_session_id, stopped_sequence, stopped_reason, stopped_at)
SELECT w.tenant_id, %(scope)s, w.projection_name,
       coalesce((SELECT served.generation FROM wakeful.projection_states AS served
                  WHERE served.tenant_id = %(tenant)s AND served.scope = %(scope)s
                    AND served.projection_name = %(name)s AND served.serving), 0),
       true, %(session)s, %(sequence)s::bigint, %(reason)s, clock_timestamp()
  FROM wakeful.projection_watermarks AS w
 WHERE w.tenant_id = %(tenant)s AND w.scope = %(session)s AND w.projection_name = %(name)s
   AND w.generation = %(generation)s::integer AND w.watermark_seq = %(mark)s::bigint
ON CONFLICT ON CONSTRAINT pk_projection_states
DO UPDATE SET stopped_session_id = excluded.stopped_session_id, stopped_sequence = excluded.stopped_sequence,
              stopped_reason = excluded.stopped_reason, stopped_at = excluded.stopped_at
RETURNING 1
"""

# Dropping generations keeps every move out: one that committed between two of the statements could leave a watermark
# without its documents, or a session's watermark without the principal's revision.
LOCK = b"SELECT pg_advisory_xact_lock(wakeful.projection_lock_v1(%(tenant)s, %(scope)s, %(name)s))"
SERVED = b"""
SELECT generation FROM wakeful.projection_states
 WHERE tenant_id = %(tenant)s AND scope = %(scope)s AND projection_name = %(name)s AND serving
"""
_OTHER = b" tenant_id = %(tenant)s AND projection_name = %(name)s AND generation <> %(generation)s::integer"
DROP_OTHERS = (
    b"DELETE FROM wakeful.projection_states WHERE scope = %(scope)s AND" + _OTHER,
    b"""DELETE FROM wakeful.projection_watermarks
         WHERE scope IN (SELECT s.id FROM wakeful.sessions AS s
                          WHERE s.tenant_id = %(tenant)s AND %(scope)s IN (s.id, s.principal_id)) AND"""
    + _OTHER,
    b"DELETE FROM wakeful.projection_documents WHERE scope = %(scope)s AND" + _OTHER,
)
SERVE = b"""
INSERT INTO wakeful.projection_states (tenant_id, scope, projection_name, generation, serving)
VALUES (%(tenant)s, %(scope)s, %(name)s, %(generation)s::integer, true)
ON CONFLICT ON CONSTRAINT pk_projection_states DO UPDATE SET serving = true, updated_at = clock_timestamp()
"""

_WANTED = """
  CROSS JOIN unnest(CAST(:names AS text[]), CAST(:versions AS integer[]), CAST(:principals AS boolean[]))
          AS p(name, version, principal)
  LEFT JOIN wakeful.projection_states AS st
    ON st.tenant_id = s.tenant_id AND st.scope = CASE WHEN p.principal THEN s.principal_id ELSE s.id END
       AND st.projection_name = p.name AND st.serving
  LEFT JOIN wakeful.projection_watermarks AS w
    ON w.tenant_id = s.tenant_id AND w.scope = s.id AND w.projection_name = p.name
       AND w.generation = coalesce(st.generation, 0)
"""
_UNSEEN = "(w.watermark_seq IS NULL OR w.watermark_seq < s.next_event_sequence - 1)"

# As role worker, over all tenants. No index leads to the sessions that have grown, because every append would have to
# write it: sessions are looked at page by page, and those of current runs first.
_LOOK = f"""
SELECT s.tenant_id, s.id, s.principal_id,
       (SELECT array_agg(p.name ORDER BY p.name)
          FROM (SELECT) AS one {_WANTED}
         WHERE ({_UNSEEN} OR w.builder_version < p.version)
           AND (st.stopped_at IS NULL
                OR st.stopped_at < statement_timestamp() - CAST(:retry_stopped AS interval))) AS behind
  FROM """  # noqa: S608 - made of the constants above
_PAGE = """
       (SELECT tenant_id, id, principal_id, next_event_sequence
          FROM wakeful.sessions
         WHERE (tenant_id, id) > (CAST(:tenant AS uuid), CAST(:id AS uuid))
         ORDER BY tenant_id, id
         LIMIT :limit) AS s
 ORDER BY s.tenant_id, s.id
"""
_LATELY = """
       (SELECT DISTINCT tenant_id, session_id
          FROM (SELECT tenant_id, session_id FROM wakeful.runs WHERE status = 'RUNNING'
                UNION ALL
                SELECT tenant_id, session_id FROM wakeful.runs
                 WHERE finished_at IS NOT NULL
                   AND finished_at > statement_timestamp() - CAST(:within AS interval)) AS either
         LIMIT :limit) AS r
  JOIN wakeful.sessions AS s ON s.tenant_id = r.tenant_id AND s.id = r.session_id
"""
BEHIND, BEHIND_LATELY = _LOOK + _PAGE, _LOOK + _LATELY
LAGGING = f"""
SELECT s.tenant_id, s.id, p.name, p.principal, s.principal_id, s.next_event_sequence - 1 AS last_sequence,
       coalesce(w.watermark_seq, 0) AS watermark
  FROM wakeful.sessions AS s {_WANTED}
 WHERE ({_UNSEEN} OR st.stopped_at IS NOT NULL) AND (CAST(:tenant AS uuid) IS NULL OR s.tenant_id = :tenant)
 ORDER BY s.next_event_sequence - 1 - coalesce(w.watermark_seq, 0) DESC, s.id, p.name
 LIMIT :limit
"""  # noqa: S608 - made of the constants above

OLDEST_UNSEEN = b"""
SELECT extract(epoch FROM statement_timestamp() - e.created_at)::float8 FROM wakeful.events AS e
 WHERE e.tenant_id = %(tenant)s AND e.session_id = %(session)s AND e.sequence > %(mark)s::bigint
 ORDER BY e.sequence LIMIT 1
"""

SESSIONS = b"""
SELECT s.id FROM wakeful.sessions AS s
 WHERE s.tenant_id = %(tenant)s AND (%(after)s::uuid IS NULL OR s.id > %(after)s::uuid)
 ORDER BY s.id LIMIT %(limit)s::integer
"""
PRINCIPALS = b"""
SELECT DISTINCT s.principal_id AS id FROM wakeful.sessions AS s
 WHERE s.tenant_id = %(tenant)s AND (%(after)s::uuid IS NULL OR s.principal_id > %(after)s::uuid)
 ORDER BY s.principal_id LIMIT %(limit)s::integer
"""

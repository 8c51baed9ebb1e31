"""Where sweeps look: read as role `worker` across tenants, without locks, from granted columns only.

A candidate is a hint. Whoever handles it locks in the one order and looks again. Due and expiry predicates compare
with `statement_timestamp()`: `clock_timestamp()` is volatile and would keep the partial indexes from being used.
"""

from sqlalchemy import text

__all__ = [
    "EXPIRED_KEYS",
    "EXPIRED_LEASES",
    "EXPIRED_WAITS",
    "HELD_BY",
    "HOPELESS",
    "LAST_TICK",
    "ORPHANS",
    "TICK",
    "UNDELIVERED",
]

EXPIRED_LEASES = text("""
SELECT tenant_id, session_id, id, lease_owner, lease_epoch
  FROM wakeful.runs
 WHERE status = 'RUNNING' AND lease_expires_at <= coalesce(CAST(:now AS timestamptz), statement_timestamp())
 ORDER BY lease_expires_at
 LIMIT :limit
""")

# Once per worker that is missing: the few thousand rows that are RUNNING are read for it.
HELD_BY = text("""
SELECT tenant_id, session_id, id, lease_owner, lease_epoch, lease_expires_at
  FROM wakeful.runs
 WHERE status = 'RUNNING' AND ('x' || right(lease_owner::text, 8))::bit(32)::bigint = ANY (:marks)
 ORDER BY tenant_id, id
""")

# Two indexes, two branches: the exhausted are few, and the deadline index orders the rest.
HOPELESS = text("""
SELECT tenant_id, session_id, id
  FROM ((SELECT tenant_id, session_id, id FROM wakeful.runs
          WHERE status = 'QUEUED' AND lease_expirations > 0 AND lease_expirations >= :max_attempts
          LIMIT :limit)
        UNION
        (SELECT tenant_id, session_id, id FROM wakeful.runs
          WHERE deadline_at IS NOT NULL AND deadline_at <= coalesce(CAST(:now AS timestamptz), statement_timestamp())
            AND status IN ('QUEUED', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD')
          ORDER BY deadline_at
          LIMIT :limit)) AS either
 LIMIT :limit
""")

EXPIRED_WAITS = text("""
SELECT tenant_id, session_id, run_id, id
  FROM wakeful.tool_invocations
 WHERE expires_at IS NOT NULL AND expires_at <= coalesce(CAST(:now AS timestamptz), statement_timestamp())
   AND status IN ('AWAITING_APPROVAL', 'AWAITING_INPUT')
 ORDER BY expires_at
 LIMIT :limit
""")

UNDELIVERED = text("""
SELECT tenant_id, session_id, id, parent_session_id, parent_run_id, parent_invocation_id
  FROM wakeful.runs
 WHERE parent_run_id IS NOT NULL AND result_delivered_at IS NULL AND parent_invocation_id IS NOT NULL
   AND status IN ('COMPLETED', 'FAILED', 'CANCELLED')
 ORDER BY finished_at
 LIMIT :limit
""")

# A running child that was asked to end already needs no second word.
ORPHANS = text("""
SELECT child.tenant_id, child.session_id, child.id
  FROM wakeful.runs AS child
  LEFT JOIN wakeful.runs AS parent ON parent.tenant_id = child.tenant_id AND parent.id = child.parent_run_id
 WHERE child.parent_run_id IS NOT NULL
   AND child.status IN ('QUEUED', 'RUNNING', 'WAITING_INPUT', 'WAITING_APPROVAL', 'WAITING_CHILD')
   AND NOT (child.status = 'RUNNING' AND child.cancel_requested_at IS NOT NULL)
   AND (parent.id IS NULL OR parent.cancel_requested_at IS NOT NULL
        OR parent.status IN ('COMPLETED', 'FAILED', 'CANCELLED'))
 ORDER BY child.created_at
 LIMIT :limit
""")

EXPIRED_KEYS = text("""
SELECT k.tenant_id, k.principal_id, k.key
  FROM wakeful.idempotency_keys AS k
 WHERE k.expires_at <= coalesce(CAST(:now AS timestamptz), statement_timestamp())
   AND NOT EXISTS (SELECT FROM wakeful.runs AS r
                    WHERE r.tenant_id = k.tenant_id AND r.id = k.run_id
                      AND r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
 ORDER BY k.expires_at
 LIMIT :limit
""")

TICK = text("""
INSERT INTO wakeful.sweep_ticks AS t (sweep, ticked_at, owner) VALUES (:sweep, clock_timestamp(), :owner)
ON CONFLICT ON CONSTRAINT pk_sweep_ticks
DO UPDATE SET ticked_at = greatest(t.ticked_at, clock_timestamp()), owner = excluded.owner
""")

LAST_TICK = text("SELECT clock_timestamp() - ticked_at FROM wakeful.sweep_ticks WHERE sweep = :sweep")

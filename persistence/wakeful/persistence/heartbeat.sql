-- Extend the leases named, and only those; list the RUNNING leases of this owner that it did not name.
--
-- Rows are locked in (tenant, id) order: heartbeats beside whoever else takes several runs deadlock otherwise.
-- One named and not renewed is lost, and is no adoption although this statement's snapshot may still show it held.
WITH named AS MATERIALIZED (
        SELECT lease.tenant_id, lease.id, lease.epoch
          FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(epochs)s::integer[]) AS lease (tenant_id, id, epoch)),
     held AS MATERIALIZED (
        SELECT r.tenant_id, r.id
          FROM wakeful.runs AS r
          JOIN named ON named.tenant_id = r.tenant_id AND named.id = r.id AND named.epoch = r.lease_epoch
         WHERE r.lease_owner = %(owner)s::uuid AND r.status = 'RUNNING'
         ORDER BY r.tenant_id, r.id
           FOR NO KEY UPDATE OF r),
     renewed AS (
        UPDATE wakeful.runs AS r
           SET lease_expires_at = clock_timestamp() + %(lease)s::interval
          FROM held
         WHERE r.tenant_id = held.tenant_id AND r.id = held.id
        RETURNING r.tenant_id, r.id, r.session_id, r.agent, r.agent_version, r.priority, r.attempts, r.suspect,
                  r.lease_epoch, r.cancel_requested_at)
SELECT renewed.tenant_id, renewed.id, renewed.session_id, renewed.agent, renewed.agent_version, renewed.priority,
       renewed.attempts, renewed.suspect, renewed.lease_epoch, renewed.cancel_requested_at IS NOT NULL AS cancel,
       true AS renewed, 0::float8 AS waited_seconds
  FROM renewed
UNION ALL
SELECT r.tenant_id, r.id, r.session_id, r.agent, r.agent_version, r.priority, r.attempts, r.suspect, r.lease_epoch,
       false, false, 0::float8
  FROM wakeful.runs AS r
 WHERE r.lease_owner = %(owner)s::uuid AND r.status = 'RUNNING'
   AND NOT EXISTS (SELECT FROM named
                    WHERE named.tenant_id = r.tenant_id AND named.id = r.id AND named.epoch = r.lease_epoch)

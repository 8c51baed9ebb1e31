-- Take due runs: at most as many of each class as it has free slots, and `suspects` suspects in all.
--
-- Index ix_runs_queued (priority, agent, due_at) WHERE status = 'QUEUED' is probed once per eligible class and served
-- agent, in its own order, so neither a backlog, nor runs of the future, nor another agent's runs cost anything.
-- MATERIALIZED: an inlined, re-evaluated subquery with LIMIT claims more rows than it says. NO KEY: a foreign-key
-- check on a queued run must not hide it. SKIP LOCKED never waits, so no order of locks can deadlock. Runs that one
-- probe locked and the limits then left out are free again when the statement commits.
-- Suspects are probed apart and only among the first of their class, so that many of them hide nobody behind them.
-- Comparisons use the statement's time, computed first and by itself: under row-level security an index condition may
-- hold a plain value, but no COALESCE. The term counts from when the row is written.
-- A connection keeps one plan, perhaps made while the queue was empty, when any index looks as good as the key's. So
-- rows are taken by their place in the table. One that was updated after the statement began has moved, and is left to
-- the next claim; one that was not is locked, and QUEUED still.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS at),
     due AS MATERIALIZED (
        SELECT probe.*
          FROM moment
         CROSS JOIN unnest(%(classes)s::smallint[], %(slots)s::integer[]) AS class (priority, slots)
         CROSS JOIN unnest(%(agents)s::text[]) AS served (agent)
         CROSS JOIN LATERAL (
                SELECT ordinary.* FROM (
                        SELECT r.ctid AS place, r.id, r.priority, r.due_at, r.suspect
                          FROM wakeful.runs AS r
                         WHERE r.status = 'QUEUED' AND r.priority = class.priority AND r.agent = served.agent
                           AND r.due_at <= moment.at
                           AND r.lease_expirations < %(max_attempts)s::integer AND NOT r.suspect
                         ORDER BY r.due_at
                         LIMIT class.slots
                           FOR NO KEY UPDATE SKIP LOCKED) AS ordinary
                UNION ALL
                SELECT suspected.* FROM (
                        SELECT r.ctid AS place, r.id, r.priority, r.due_at, r.suspect
                          FROM (
                                SELECT first.ctid AS place, first.suspect
                                  FROM wakeful.runs AS first
                                 WHERE first.status = 'QUEUED' AND first.priority = class.priority
                                   AND first.agent = served.agent
                                   AND first.due_at <= moment.at
                                   AND first.lease_expirations < %(max_attempts)s::integer
                                   AND %(suspects)s::integer > 0
                                 ORDER BY first.due_at
                                 LIMIT class.slots + %(suspects)s::integer) AS head
                          JOIN wakeful.runs AS r ON r.ctid = head.place
                         WHERE head.suspect AND r.status = 'QUEUED' AND r.suspect
                         ORDER BY r.due_at
                         LIMIT least(class.slots, %(suspects)s::integer)
                           FOR NO KEY UPDATE OF r SKIP LOCKED) AS suspected) AS probe),
     counted AS (
        SELECT due.*, row_number() OVER (PARTITION BY due.suspect ORDER BY due.priority, due.due_at, due.id) AS nth
          FROM due),
     chosen AS MATERIALIZED (
        SELECT ranked.place
          FROM (SELECT counted.*,
                       row_number() OVER (PARTITION BY counted.priority ORDER BY counted.due_at, counted.id) AS turn
                  FROM counted
                 WHERE NOT counted.suspect OR counted.nth <= %(suspects)s::integer) AS ranked
          JOIN unnest(%(classes)s::smallint[], %(slots)s::integer[]) AS class (priority, slots)
            ON class.priority = ranked.priority AND ranked.turn <= class.slots),
     taken AS (
        UPDATE wakeful.runs AS r
           SET status = 'RUNNING',
               lease_owner = %(owner)s::uuid,
               lease_epoch = r.lease_epoch + 1,
               lease_expires_at = clock_timestamp() + %(lease)s::interval,
               attempts = r.attempts + 1,
               updated_at = greatest(r.updated_at, clock_timestamp())
          FROM chosen
         WHERE r.ctid = chosen.place
        RETURNING r.tenant_id, r.id, r.session_id, r.agent, r.agent_version, r.priority, r.attempts, r.suspect,
                  r.lease_epoch, r.due_at)
SELECT taken.*,
       greatest(0, extract(epoch FROM moment.at - taken.due_at))::float8 AS waited_seconds
  FROM taken CROSS JOIN moment
 ORDER BY taken.priority, taken.due_at, taken.id

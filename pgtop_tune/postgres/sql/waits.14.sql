-- Several times a second: counted on the server, straight from the function; no joins for names, no query texts out.
-- Auxiliary processes have no state; a row without backend_type is one this role may not look into.
-- Idle in a transaction for less than a second: the client's turn. Idle between two transactions: of pgbench only.
-- Clients' transactions older than $1 ms have rows of their own; with $2, those of one session in so many. Such a row of a
-- session that has been idle for longer is of the transaction alone: it has no observation.
-- What is the same for every row is computed once, in a subquery of its own.
SELECT CASE WHEN w.pausing IS NOT NULL THEN 'Client' WHEN w.wait_event IS NULL THEN 'CPU'
            ELSE w.wait_event_type END AS wait_event_type,
       coalesce(w.pausing, w.wait_event, '') AS wait_event,
       w.backend_type,
       count(*) FILTER (WHERE w.pausing IS NULL OR w.state_change > (SELECT now() - interval '1 s')) AS observations,
       CASE WHEN w.pausing IS NULL THEN w.query_id END AS query_id,
       w.datid,
       w.usesysid,
       w.of_load,
       CASE WHEN w.followed THEN w.pid END AS pid,
       CASE WHEN w.followed THEN (date_part('epoch', w.xact_start) * 1000)::bigint END AS xact_start_ms,
       CASE WHEN w.followed THEN date_part('epoch', now() - w.xact_start) * 1000 END AS age_ms
  FROM (SELECT s.wait_event_type, s.wait_event, s.backend_type, s.query_id, s.datid, s.usesysid,
               coalesce(s.application_name = 'pgbench', false) AS of_load,
               CASE s.state WHEN 'idle in transaction' THEN 'turn'
                            WHEN 'idle in transaction (aborted)' THEN 'turn'
                            WHEN 'idle' THEN 'between' END AS pausing,
               s.state_change, s.pid, s.xact_start,
               coalesce(s.xact_start < (SELECT now() - $1::int * interval '1 ms') AND mod(s.pid, $2::int) = 0
                        AND s.backend_type = 'client backend', false) AS followed
          FROM pg_stat_get_activity(NULL) s
         WHERE s.backend_type IS NOT NULL
           AND s.pid <> pg_backend_pid()
           AND CASE WHEN s.state IN ('active', 'fastpath function call') THEN true
                    WHEN s.state IN ('idle in transaction', 'idle in transaction (aborted)') THEN true
                    WHEN s.state = 'idle' THEN s.application_name = 'pgbench'
                    ELSE s.state IS NULL AND s.wait_event_type IS DISTINCT FROM 'Extension' END) w
 WHERE CASE WHEN w.pausing IS NULL THEN w.wait_event_type IS DISTINCT FROM 'Activity'
            ELSE w.state_change > (SELECT now() - interval '1 s') OR w.followed END
 GROUP BY 1, 2, 3, 5, 6, 7, 8, 9, 10, 11

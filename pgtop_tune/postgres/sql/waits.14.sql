-- Several times a second: counted on the server, straight from the function; no joins for names, no query texts out.
-- Auxiliary processes have no state; a row without backend_type is one this role may not look into.
-- Idle in a transaction for less than a second: the client's turn. Idle between two transactions: of pgbench only.
SELECT CASE WHEN w.pausing IS NOT NULL THEN 'Client' WHEN w.wait_event IS NULL THEN 'CPU'
            ELSE w.wait_event_type END AS wait_event_type,
       coalesce(w.pausing, w.wait_event, '') AS wait_event,
       w.backend_type,
       count(*) AS observations,
       CASE WHEN w.pausing IS NULL THEN w.query_id END AS query_id,
       w.datid,
       w.usesysid,
       w.of_load
  FROM (SELECT s.wait_event_type, s.wait_event, s.backend_type, s.query_id, s.datid, s.usesysid,
               coalesce(s.application_name = 'pgbench', false) AS of_load,
               CASE s.state WHEN 'idle in transaction' THEN 'turn'
                            WHEN 'idle in transaction (aborted)' THEN 'turn'
                            WHEN 'idle' THEN 'between' END AS pausing,
               s.state_change
          FROM pg_stat_get_activity(NULL) s
         WHERE s.backend_type IS NOT NULL
           AND s.pid <> pg_backend_pid()
           AND CASE WHEN s.state IN ('active', 'fastpath function call') THEN true
                    WHEN s.state IN ('idle in transaction', 'idle in transaction (aborted)') THEN true
                    WHEN s.state = 'idle' THEN s.application_name = 'pgbench'
                    ELSE s.state IS NULL AND s.wait_event_type IS DISTINCT FROM 'Extension' END) w
 WHERE CASE WHEN w.pausing IS NULL THEN w.wait_event_type IS DISTINCT FROM 'Activity'
            ELSE w.state_change > now() - interval '1 s' END
 GROUP BY 1, 2, 3, 5, 6, 7, 8

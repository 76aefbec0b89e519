-- {schema} is composed in, quoted. Counted by pg_wait_sampling since it was loaded, by backend: counts of those that
-- have ended are left out, so that sums never fall. It does not know whether a session is idle: waits for the client
-- count only for pgbench, whose sessions always have a transaction to do.
SELECT p.pid,
       coalesce(p.event_type, 'CPU') AS wait_event_type,
       CASE WHEN p.event_type = 'Client' THEN 'turn' ELSE coalesce(p.event, '') END AS wait_event,
       s.backend_type,
       p.count AS observations,
       CASE WHEN p.event_type = 'Client' OR p.queryid = 0 THEN NULL ELSE p.queryid END AS query_id,
       s.datid,
       s.usesysid,
       coalesce(s.application_name = 'pgbench', false) AS of_load
  FROM {schema}.pg_wait_sampling_profile p
  JOIN pg_stat_get_activity(NULL) s ON s.pid = p.pid
 WHERE p.pid <> pg_backend_pid()
   AND s.application_name IS DISTINCT FROM 'pgtop-tune'
   AND s.backend_type IS NOT NULL
   AND p.event_type IS DISTINCT FROM 'Activity'
   AND (p.event_type IS DISTINCT FROM 'Client' OR s.application_name = 'pgbench')
   AND (p.event_type IS DISTINCT FROM 'Extension' OR s.state IS NOT NULL)

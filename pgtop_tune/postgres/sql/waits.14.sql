-- Several times a second: counted on the server, straight from the function; no joins for names, no query texts out.
-- Grouped by the columns as they are; what a wait is called is said by the reader, once.
-- Auxiliary processes have no state; a row without backend_type is one this role may not look into.
-- Idle in a transaction for less than a second: the client's turn. Idle between two transactions: of pgbench only.
-- Of clients' transactions older than $1 ms, pid and start stand beside the count; with $2, those of one session in so
-- many. A session that has been idle for longer is there for its transaction alone: it is no observation.
-- Sessions with which other instances of this program watch are no load, unless one has a transaction of seconds; nor is
-- one of ours that a file system keeps from ending.
-- What is the same for every row is computed once, in m.
-- The moment stands first: the rest of a row is known by its bytes (readers/waits).
SELECT m.now_ms,
       count(*) FILTER (WHERE s.state_change > m.lately OR s.state IS NULL OR NOT starts_with(s.state, 'idle in ')) AS observations,
       array_agg(s.pid::oid) FILTER (WHERE CASE WHEN s.xact_start < m.old THEN
                                                mod(s.pid, $2::int) = 0 AND s.backend_type = 'client backend' END) AS pids,
       array_agg((date_part('epoch', s.xact_start) * 1000)::bigint::text)
           FILTER (WHERE CASE WHEN s.xact_start < m.old THEN
                              mod(s.pid, $2::int) = 0 AND s.backend_type = 'client backend' END) AS xact_starts_ms,
       s.wait_event_type,
       s.wait_event,
       s.backend_type,
       CASE s.state WHEN 'active' THEN s.query_id
                    WHEN 'idle' THEN NULL
                    WHEN 'idle in transaction' THEN NULL
                    WHEN 'idle in transaction (aborted)' THEN NULL
                    ELSE s.query_id END AS query_id,
       s.datid,
       s.usesysid,
       coalesce(s.application_name = 'pgbench', false) AS of_load,
       s.state
  FROM (SELECT date_part('epoch', now()) * 1000 AS now_ms, now() - interval '1 s' AS lately,
               now() - interval '5 s' AS long_ago,
               now() - $1::int * interval '1 ms' AS old, pg_backend_pid() AS pid OFFSET 0) m,
       pg_stat_get_activity(NULL) s
 WHERE s.backend_type IS NOT NULL
   AND s.pid <> m.pid
   AND (s.application_name IS DISTINCT FROM 'pgtop-tune'
        OR s.xact_start < m.long_ago
           AND NOT (s.state = 'active' AND (starts_with(s.query, 'SELECT /* pgtop-tune */')
                                            OR starts_with(s.query, 'WITH /* pgtop-tune */'))))
   AND CASE s.state WHEN 'active' THEN s.wait_event_type IS DISTINCT FROM 'Activity'
                    WHEN 'idle' THEN s.application_name = 'pgbench' AND s.state_change > m.lately
                    WHEN 'idle in transaction' THEN s.state_change > m.lately OR s.xact_start < m.old
                    WHEN 'idle in transaction (aborted)' THEN s.state_change > m.lately OR s.xact_start < m.old
                    WHEN 'fastpath function call' THEN s.wait_event_type IS DISTINCT FROM 'Activity'
                    ELSE s.state IS NULL AND coalesce(s.wait_event_type NOT IN ('Activity', 'Extension'), true) END
 GROUP BY 1, 5, 6, 7, 8, 9, 10, 11, 12

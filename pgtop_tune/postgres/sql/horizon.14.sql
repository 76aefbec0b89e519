-- The oldest transactions under way, with a transaction id or a snapshot; one row with nulls when there is none.
-- A session idle in transaction has no snapshot between statements, but what it wrote has an id, and that holds too.
SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms,
       ((age('3'::xid)::bigint + 3) & 4294967295) AS next_xid,
       coalesce(t.n_open, 0) AS n_open,
       t.pid,
       d.datname::text AS datname,
       CASE WHEN t.usesysid IS NOT NULL THEN pg_get_userbyid(t.usesysid)::text END AS usename,
       t.backend_type,
       t.state,
       (date_part('epoch', t.xact_start) * 1000)::bigint AS xact_start_ms,
       t.backend_xid AS xid,
       t.backend_xmin AS xmin,
       t.is_vacuum
  FROM (SELECT 1) one
  LEFT JOIN (SELECT s.pid, s.datid, s.usesysid, s.backend_type, s.state, s.xact_start, s.backend_xid, s.backend_xmin,
                    count(*) OVER () AS n_open,
                    s.pid IN (SELECT v.pid FROM pg_stat_get_progress_info('VACUUM') v) AS is_vacuum
               FROM pg_stat_get_activity(NULL) s
              WHERE (s.backend_xid IS NOT NULL OR s.backend_xmin IS NOT NULL) AND s.pid <> pg_backend_pid()
              ORDER BY greatest(age(s.backend_xid), age(s.backend_xmin)) DESC
              LIMIT 20) t ON true
  LEFT JOIN pg_database d ON d.oid = t.datid

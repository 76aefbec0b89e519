-- One session's statement, whole: as bytes, because it is in the encoding of its own database.
SELECT textsend(s.query) AS query,
       octet_length(s.query) AS query_bytes,
       pg_size_bytes(current_setting('track_activity_query_size'))::int AS most_bytes,
       (SELECT d.datname::text FROM pg_database d WHERE d.oid = s.datid) AS datname,
       (SELECT r.rolname::text FROM pg_roles r WHERE r.oid = s.usesysid) AS role
  FROM pg_stat_get_activity($1) s
 WHERE (date_part('epoch', s.backend_start) * 1000)::bigint = $2

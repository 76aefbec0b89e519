-- Reads the directory and asks for the size of every file in it: rarely.
-- CASE keeps the functions of a primary from being called on a standby, where they raise an error.
SELECT count(*) FILTER (WHERE f.name ~ '^[0-9A-F]{24}$') AS segments,
       coalesce(sum(f.size), 0)::bigint AS wal_bytes,
       CASE WHEN max(w.writing) IS NOT NULL
            THEN count(*) FILTER (WHERE f.name ~ '^[0-9A-F]{24}$' AND f.name COLLATE "C" > w.writing) END AS recycled
  FROM pg_ls_waldir() f
 CROSS JOIN (SELECT CASE WHEN NOT pg_is_in_recovery()
                         THEN pg_walfile_name(pg_current_wal_insert_lsn()) END AS writing) w

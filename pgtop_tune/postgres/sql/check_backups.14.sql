-- History files of backups in pg_wal: a server that archives writes one at the end of each, and removes older ones.
SELECT count(*)::int AS number,
       (max(date_part('epoch', modification)) * 1000)::bigint AS newest_ms,
       (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms
  FROM pg_ls_waldir()
 WHERE name ~ '^[0-9A-F]{24}[.][0-9A-F]{8}[.]backup$'

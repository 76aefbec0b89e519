SELECT archived_count,
       coalesce(last_archived_wal, '') AS last_archived_wal,
       (date_part('epoch', last_archived_time) * 1000)::bigint AS last_archived_ms,
       failed_count,
       coalesce(last_failed_wal, '') AS last_failed_wal,
       (date_part('epoch', last_failed_time) * 1000)::bigint AS last_failed_ms,
       (date_part('epoch', stats_reset) * 1000)::bigint AS stats_reset_ms
  FROM pg_stat_archiver

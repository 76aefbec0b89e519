SELECT name,
       blks_zeroed,
       blks_hit,
       blks_read,
       blks_written,
       blks_exists,
       flushes,
       truncates,
       (date_part('epoch', stats_reset) * 1000)::bigint AS stats_reset_ms
  FROM pg_stat_slru

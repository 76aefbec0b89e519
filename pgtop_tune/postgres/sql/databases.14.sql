-- The busiest hundred; nobody reads more, and there may be thousands.
SELECT b.*
  FROM (SELECT s.datid::bigint AS datid,
               s.datname::text AS datname,
               s.numbackends,
               s.xact_commit,
               s.xact_rollback,
               NULL::bigint AS parallel_workers,  -- until 17
               s.parallel_workers_launched AS parallel_workers,  -- from 18
               s.blks_read,
               s.blks_hit,
               s.tup_returned,
               s.tup_fetched,
               s.tup_inserted,
               s.tup_updated,
               s.tup_deleted,
               s.conflicts,
               s.temp_files,
               s.temp_bytes,
               s.deadlocks,
               s.checksum_failures,
               (s.blk_read_time * 1000)::bigint AS blk_read_us,
               (s.blk_write_time * 1000)::bigint AS blk_write_us,
               (s.session_time * 1000)::bigint AS session_us,
               (s.active_time * 1000)::bigint AS active_us,
               (s.idle_in_transaction_time * 1000)::bigint AS idle_in_transaction_us,
               s.sessions,
               s.sessions_abandoned,
               s.sessions_fatal,
               s.sessions_killed,
               (date_part('epoch', s.stats_reset) * 1000)::bigint AS stats_reset_ms,
               count(*) OVER () - 100 AS left_out
          FROM pg_stat_database s
         ORDER BY s.xact_commit + s.xact_rollback DESC
         LIMIT 100) b
 ORDER BY b.datid

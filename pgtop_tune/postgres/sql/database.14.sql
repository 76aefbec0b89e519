-- pg_stat_database of all databases and of the shared objects (datid 0).
SELECT sum(xact_commit)::bigint AS xact_commit,
       sum(xact_rollback)::bigint AS xact_rollback,
       sum(sessions)::bigint AS sessions,
       NULL::bigint AS parallel_workers,  -- until 17
       sum(parallel_workers_launched)::bigint AS parallel_workers,  -- from 18
       sum(blks_read)::bigint AS blks_read,
       sum(blks_hit)::bigint AS blks_hit,
       sum(tup_returned)::bigint AS tup_returned,
       sum(tup_fetched)::bigint AS tup_fetched,
       sum(tup_inserted)::bigint AS tup_inserted,
       sum(tup_updated)::bigint AS tup_updated,
       sum(tup_deleted)::bigint AS tup_deleted,
       sum(conflicts)::bigint AS conflicts,
       sum(temp_files)::bigint AS temp_files,
       sum(temp_bytes)::bigint AS temp_bytes,
       sum(deadlocks)::bigint AS deadlocks,
       (date_part('epoch', max(stats_reset)) * 1000)::bigint AS stats_reset_ms,
       count(*) AS databases
  FROM pg_stat_database

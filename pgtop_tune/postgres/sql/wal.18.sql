-- 18 moved writes and syncs of WAL to pg_stat_io; context init, new segments filled with zeros, was never counted.
-- What receives WAL on a standby is left out as it was before. From 19 on the bytes of full-page images are a column.
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
        - '0/0'::pg_lsn)::bigint AS lsn_bytes,
       w.wal_records,
       w.wal_fpi,
       w.wal_bytes::bigint AS wal_bytes,
       NULL::bigint AS wal_fpi_bytes,  -- until 18
       w.wal_fpi_bytes::bigint AS wal_fpi_bytes,  -- from 19
       w.wal_buffers_full,
       (date_part('epoch', greatest(w.stats_reset, i.stats_reset)) * 1000)::bigint AS stats_reset_ms,
       i.wal_writes,
       (i.write_time * 1000)::bigint AS wal_write_us,
       i.wal_syncs,
       (i.fsync_time * 1000)::bigint AS wal_sync_us
  FROM pg_stat_wal w,
       (SELECT sum(writes)::bigint AS wal_writes, sum(write_time) AS write_time,
               sum(fsyncs)::bigint AS wal_syncs, sum(fsync_time) AS fsync_time, max(stats_reset) AS stats_reset
          FROM pg_stat_io
         WHERE object = 'wal' AND context = 'normal' AND backend_type <> 'walreceiver') i

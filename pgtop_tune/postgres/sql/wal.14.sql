-- CASE keeps the functions of a primary from being called on a standby, where they raise an error.
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
        - '0/0'::pg_lsn)::bigint AS lsn_bytes,
       wal_records,
       wal_fpi,
       wal_bytes::bigint AS wal_bytes,
       NULL::bigint AS wal_fpi_bytes,
       wal_buffers_full,
       (date_part('epoch', stats_reset) * 1000)::bigint AS stats_reset_ms,
       wal_write AS wal_writes,
       (wal_write_time * 1000)::bigint AS wal_write_us,
       wal_sync AS wal_syncs,
       (wal_sync_time * 1000)::bigint AS wal_sync_us
  FROM pg_stat_wal

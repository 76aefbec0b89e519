-- On a standby these count restartpoints. buffers_backend includes the extension of relations.
SELECT b.checkpoints_timed AS timed,
       b.checkpoints_req AS requested,
       b.checkpoint_write_time AS write_ms,
       b.checkpoint_sync_time AS sync_ms,
       b.buffers_checkpoint,
       b.buffers_clean,
       b.maxwritten_clean,
       b.buffers_backend,
       b.buffers_alloc,
       (c.redo_lsn - '0/0'::pg_lsn)::bigint AS redo_lsn_bytes,
       (date_part('epoch', c.checkpoint_time) * 1000)::bigint AS checkpoint_time_ms,
       (date_part('epoch', b.stats_reset) * 1000)::bigint AS stats_reset_ms,
       NULL::bigint AS done,
       NULL::bigint AS slru_written,
       b.buffers_backend_fsync AS backend_fsyncs
  FROM pg_stat_bgwriter b, pg_control_checkpoint() c

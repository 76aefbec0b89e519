-- 17 split pg_stat_checkpointer off and counts restartpoints apart, 18 counts finished checkpoints and what they write of SLRU caches.
-- What backends wrote is in pg_stat_io, one block per write, the extension of relations not included (to 16 it was).
SELECT k.num_timed + k.restartpoints_timed AS timed,
       k.num_requested + k.restartpoints_req AS requested,
       k.write_time AS write_ms,
       k.sync_time AS sync_ms,
       k.buffers_written AS buffers_checkpoint,
       b.buffers_clean,
       b.maxwritten_clean,
       i.writes AS buffers_backend,
       b.buffers_alloc,
       (c.redo_lsn - '0/0'::pg_lsn)::bigint AS redo_lsn_bytes,
       (date_part('epoch', c.checkpoint_time) * 1000)::bigint AS checkpoint_time_ms,
       (date_part('epoch', greatest(k.stats_reset, b.stats_reset)) * 1000)::bigint AS stats_reset_ms,
       NULL::bigint AS done,  -- until 17
       NULL::bigint AS slru_written,  -- until 17
       k.num_done + k.restartpoints_done AS done,  -- from 18
       k.slru_written,  -- from 18
       i.fsyncs AS backend_fsyncs
  FROM pg_stat_checkpointer k, pg_stat_bgwriter b, pg_control_checkpoint() c,
       (SELECT sum(writes)::bigint AS writes, sum(fsyncs)::bigint AS fsyncs FROM pg_stat_io
         WHERE object = 'relation' AND backend_type NOT IN ('checkpointer', 'background writer')) i

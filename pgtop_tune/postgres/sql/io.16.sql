-- 16 and 17 count operations of one size; 18 counts bytes, because one operation may move several blocks, and adds WAL.
SELECT s.backend_type || '/' || s.object || '/' || s.context AS id,
       s.backend_type,
       s.object,
       s.context,
       s.reads,
       s.reads * s.op_bytes AS read_bytes,  -- until 17
       s.read_bytes::bigint AS read_bytes,  -- from 18
       (s.read_time * 1000)::bigint AS read_us,
       s.writes,
       s.writes * s.op_bytes AS write_bytes,  -- until 17
       s.write_bytes::bigint AS write_bytes,  -- from 18
       (s.write_time * 1000)::bigint AS write_us,
       s.writebacks,
       (s.writeback_time * 1000)::bigint AS writeback_us,
       s.extends,
       s.extends * s.op_bytes AS extend_bytes,  -- until 17
       s.extend_bytes::bigint AS extend_bytes,  -- from 18
       (s.extend_time * 1000)::bigint AS extend_us,
       s.hits,
       s.evictions,
       s.reuses,
       s.fsyncs,
       (s.fsync_time * 1000)::bigint AS fsync_us,
       (date_part('epoch', s.stats_reset) * 1000)::bigint AS stats_reset_ms
  FROM pg_stat_io s
 WHERE coalesce(s.reads, 0) + coalesce(s.writes, 0) + coalesce(s.writebacks, 0) + coalesce(s.extends, 0)
       + coalesce(s.hits, 0) + coalesce(s.fsyncs, 0) > 0

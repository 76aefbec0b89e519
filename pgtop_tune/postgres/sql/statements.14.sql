-- The major here stands for the version of the extension, which may be older than the server: 14 reads pg_stat_statements 1.9,
-- 15 reads 1.10 (times of temporary files, JIT), 17 1.11 (block times by kind of relation, when the entry was made), 18 1.12 (WAL buffers),
-- 19 1.13 (generic and custom plans).
-- One call of the function serves everything: it returns every entry, under its lock, whatever WHERE says. {schema} is composed in, quoted:
-- the extension may live anywhere. Without entries there is one row, without counters.
SELECT s.queryid,
       s.userid,
       s.dbid,
       s.toplevel,
       s.plans,
       (s.total_plan_time * 1000)::bigint AS plan_us,
       s.calls,
       (s.total_exec_time * 1000)::bigint AS exec_us,
       (s.min_exec_time * 1000)::bigint AS min_exec_us,
       (s.max_exec_time * 1000)::bigint AS max_exec_us,
       s.rows,
       s.shared_blks_hit,
       s.shared_blks_read,
       s.shared_blks_dirtied,
       s.shared_blks_written,
       s.local_blks_read,
       s.local_blks_written,
       s.temp_blks_read,
       s.temp_blks_written,
       (s.blk_read_time * 1000)::bigint AS blk_read_us,  -- until 16
       (s.blk_write_time * 1000)::bigint AS blk_write_us,  -- until 16
       NULL::bigint AS temp_blk_us,  -- until 14
       ((s.shared_blk_read_time + s.local_blk_read_time) * 1000)::bigint AS blk_read_us,  -- from 17
       ((s.shared_blk_write_time + s.local_blk_write_time) * 1000)::bigint AS blk_write_us,  -- from 17
       ((s.temp_blk_read_time + s.temp_blk_write_time) * 1000)::bigint AS temp_blk_us,  -- from 15
       s.wal_records,
       s.wal_fpi,
       s.wal_bytes::bigint AS wal_bytes,
       NULL::bigint AS wal_buffers_full,  -- until 17
       NULL::bigint AS jit_functions,  -- until 14
       NULL::bigint AS jit_us,  -- until 14
       s.wal_buffers_full AS wal_buffers_full,  -- from 18
       s.jit_functions AS jit_functions,  -- from 15
       ((s.jit_generation_time + s.jit_inlining_time + s.jit_optimization_time + s.jit_emission_time) * 1000)::bigint AS jit_us,  -- from 15
       NULL::bigint AS generic_plan_calls,  -- until 18
       NULL::bigint AS custom_plan_calls,  -- until 18
       s.generic_plan_calls AS generic_plan_calls,  -- from 19
       s.custom_plan_calls AS custom_plan_calls,  -- from 19
       NULL::bigint AS stats_since_ms,  -- until 16
       (date_part('epoch', s.stats_since) * 1000)::bigint AS stats_since_ms,  -- from 17
       i.dealloc,
       (date_part('epoch', i.stats_reset) * 1000)::bigint AS stats_reset_ms
  FROM {schema}.pg_stat_statements_info i
  LEFT JOIN {schema}.pg_stat_statements(false) s ON true

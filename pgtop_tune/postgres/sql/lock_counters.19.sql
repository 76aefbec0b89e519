-- Counts a wait when it ends with the lock and lasted longer than deadlock_timeout.
SELECT s.locktype,
       s.waits,
       (s.wait_time * 1000)::bigint AS wait_us,
       s.fastpath_exceeded,
       (date_part('epoch', s.stats_reset) * 1000)::bigint AS stats_reset_ms
  FROM pg_stat_get_lock() s

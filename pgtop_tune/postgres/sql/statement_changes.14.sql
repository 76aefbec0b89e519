-- Of every entry just enough to see which ones were used since the last look; the rest is asked for those only.
SELECT s.queryid, s.userid, s.dbid, s.toplevel, s.calls, s.plans, s.total_exec_time
  FROM {schema}.pg_stat_statements(false) s

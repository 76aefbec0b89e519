-- {schema} is composed in, quoted: the extension may live anywhere. Without texts, nested statements not counted twice.
SELECT coalesce(sum(s.calls), 0)::bigint AS calls,
       coalesce(sum(s.total_exec_time), 0) AS total_exec_ms,
       count(*) AS entries,
       (SELECT i.dealloc FROM {schema}.pg_stat_statements_info i) AS dealloc,
       (SELECT (date_part('epoch', i.stats_reset) * 1000)::bigint
          FROM {schema}.pg_stat_statements_info i) AS stats_reset_ms
  FROM {schema}.pg_stat_statements(false) s
 WHERE s.toplevel

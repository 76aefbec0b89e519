-- Asked only for old transactions that wait for a heavyweight lock, few at a time and each once: a call of
-- pg_blocking_pids() locks the whole lock table. The queue is followed to its root, at each step by one of the
-- blockers; a circle ends where it began. The text of a blocker is cut as in activity.14.sql.
WITH RECURSIVE queue AS (
    SELECT w.pid, (pg_blocking_pids(w.pid))[1] AS blocker FROM unnest($1::text[]::int[]) AS w(pid)
    UNION
    SELECT q.blocker, (pg_blocking_pids(q.blocker))[1] FROM queue q WHERE q.blocker <> 0
)
SELECT q.pid, q.blocker, a.state, substring(textsend(a.query) FOR 200) AS query,
       CASE WHEN pg_client_encoding() IN ('SQL_ASCII', getdatabaseencoding())
            THEN (SELECT pg_encoding_to_char(d.encoding)::text FROM pg_database d WHERE d.oid = a.datid)
            ELSE 'UTF8' END AS query_encoding
  FROM queue q
  LEFT JOIN LATERAL pg_stat_get_activity(CASE WHEN q.blocker = 0 THEN -1 ELSE q.blocker END) a ON true
 WHERE q.blocker IS NOT NULL

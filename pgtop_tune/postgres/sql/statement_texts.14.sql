-- Reads the server's whole file of texts, so it is asked once per query id, and only for those that are shown.
-- Each entry of an id has a text of its own: what somebody else sends, too, is not ours.
SELECT DISTINCT ON (s.queryid)
       s.queryid,
       coalesce(left(s.query, 4000), '') AS query,
       coalesce(length(s.query), 0) AS characters
  FROM {schema}.pg_stat_statements(true) s
 WHERE s.queryid = ANY (ARRAY(SELECT unnest($1::text[])::bigint))
 ORDER BY s.queryid, strpos(s.query, '/* pgtop-tune */') > 0

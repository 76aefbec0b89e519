-- Reads the server's whole file of texts, so it is asked once per query id, and only for those that are shown.
-- Each entry of an id has a text of its own: what somebody else sends, too, is not ours. There is no text where the
-- file of texts is gone. Statements of ours come unasked: they must not be listed until the next answer. The function converts all texts to the encoding of our database; SQL_ASCII has them as they are.
SELECT DISTINCT ON (s.queryid)
       s.queryid,
       textsend(left(s.query, 4000)) AS query,
       CASE WHEN getdatabaseencoding() = 'SQL_ASCII' THEN pg_encoding_to_char(d.encoding)::text
            WHEN pg_client_encoding() = 'SQL_ASCII' THEN getdatabaseencoding()::text
            ELSE 'UTF8' END AS encoding,
       length(s.query) AS characters
  FROM {schema}.pg_stat_statements(true) s
  LEFT JOIN pg_database d ON d.oid = s.dbid
 WHERE s.query IS NOT NULL
   AND (s.queryid = ANY (ARRAY(SELECT unnest($1::text[])::bigint))
        OR strpos(left(s.query, 40), '/* pgtop-tune */') > 0)
 ORDER BY s.queryid, strpos(s.query, '/* pgtop-tune */') > 0

-- What sessions run or have run last, by query id: in place of texts that pg_stat_statements has lost or cannot convert.
-- As bytes: left() and length() refuse a text that is not of this database's encoding. 16000 hold 4000 characters.
SELECT DISTINCT ON (s.query_id)
       s.query_id AS queryid,
       substring(textsend(s.query) FOR 16000) AS query,
       CASE WHEN pg_client_encoding() IN ('SQL_ASCII', getdatabaseencoding()) THEN pg_encoding_to_char(d.encoding)::text
            ELSE 'UTF8' END AS encoding,
       octet_length(s.query) AS characters
  FROM pg_stat_get_activity(NULL) s
  LEFT JOIN pg_database d ON d.oid = s.datid
 WHERE s.query_id = ANY (ARRAY(SELECT unnest($1::text[])::bigint))
 ORDER BY s.query_id, s.query_start DESC

-- Keys of int2 and int4: the highest value that ANALYZE met, from the statistics. Small tables have no far end to reach.
SELECT n.nspname::text AS schema,
       c.relname::text AS table_name,
       a.attname::text AS column_name,
       CASE a.atttypid WHEN 'int2'::regtype THEN 32767 ELSE 2147483647 END AS highest,
       (s.bounds)[cardinality(s.bounds)] AS used
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
 CROSS JOIN LATERAL (SELECT v.histogram_bounds::text::int8[] AS bounds FROM pg_stats v
                      WHERE v.schemaname = n.nspname AND v.tablename = c.relname AND v.attname = a.attname
                        AND NOT v.inherited) s
 WHERE i.indisunique AND i.indnkeyatts = 1 AND c.oid >= 16384 AND c.reltuples > 0
   AND a.atttypid IN ('int2'::regtype, 'int4'::regtype)
   AND (s.bounds)[cardinality(s.bounds)] > CASE a.atttypid WHEN 'int2'::regtype THEN 32767 ELSE 2147483647 END * 0.1
 ORDER BY (s.bounds)[cardinality(s.bounds)]::float8 / CASE a.atttypid WHEN 'int2'::regtype THEN 32767 ELSE 2147483647 END
          DESC, i.indexrelid
 LIMIT 20

-- Unique columns of int2 and int4: the highest value that ANALYZE met, from the statistics. Those past a tenth of their
-- range are named, and one of those whose statistics the role may not see, to tell that there are such.
SELECT k.n_hidden,
       k.schema,
       k.table_name,
       k.column_name,
       k.highest,
       k.used
  FROM (SELECT n.nspname::text AS schema,
               c.relname::text AS table_name,
               a.attname::text AS column_name,
               t.highest,
               CASE WHEN r.readable THEN (s.bounds)[cardinality(s.bounds)] END AS used,
               count(*) FILTER (WHERE NOT r.readable) OVER () AS n_hidden,
               row_number() OVER (PARTITION BY r.readable
                   ORDER BY (s.bounds)[cardinality(s.bounds)]::float8 / t.highest DESC NULLS LAST, i.indexrelid) AS place,
               r.readable
          FROM pg_index i
          JOIN pg_class c ON c.oid = i.indrelid
          JOIN pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
         CROSS JOIN LATERAL (SELECT CASE a.atttypid WHEN 'int2'::regtype THEN 32767 ELSE 2147483647 END AS highest) t
         CROSS JOIN LATERAL (SELECT has_column_privilege(c.oid, a.attnum, 'SELECT') AND NOT row_security_active(c.oid)
                                    AS readable) r
          LEFT JOIN LATERAL (SELECT v.histogram_bounds::text::int8[] AS bounds FROM pg_stats v
                              WHERE v.schemaname = n.nspname AND v.tablename = c.relname AND v.attname = a.attname
                                AND NOT v.inherited) s ON true
         WHERE i.indisunique AND i.indnkeyatts = 1 AND c.oid >= 16384 AND c.reltuples > 0
           AND a.atttypid IN ('int2'::regtype, 'int4'::regtype)) k
 WHERE (k.place <= 20 AND k.used > k.highest * 0.1)
    OR (k.place = 1 AND NOT k.readable)

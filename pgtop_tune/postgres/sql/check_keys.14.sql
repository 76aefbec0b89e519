-- Unique columns of int2 and int4 that no sequence of theirs fills (check_sequences has those), and those that refer to
-- a column of int8: the highest value that ANALYZE met, from the statistics. A domain is as its type. Those past a tenth of their range are named, and one of those whose statistics
-- the role may not see, to tell that there are such.
-- ALTER COLUMN TYPE fails where the column is a parent's, is a partition key, or is used by views, triggers, policies …
-- The statistics are looked up for each column by itself: joined, their view was searched whole for every column.
SELECT k.n_hidden,
       k.schema,
       k.table_name,
       k.column_name,
       k.highest,
       k.used,
       k.type_is_kept_by,
       k.used_by
  FROM (SELECT f.*,
               count(*) FILTER (WHERE NOT f.readable) OVER () AS n_hidden,
               row_number() OVER (PARTITION BY f.readable
                                      ORDER BY f.used::float8 / f.highest DESC NULLS LAST, f.oid) AS place
          FROM (SELECT i.indexrelid AS oid,
                       n.nspname::text AS schema,
                       c.relname::text AS table_name,
                       a.attname::text AS column_name,
                       CASE y.base WHEN 'int2'::regtype THEN 32767 ELSE 2147483647 END AS highest,
                       r.readable,
                       CASE WHEN r.readable THEN
                            (SELECT greatest(v.bounds[cardinality(v.bounds)], (SELECT max(m) FROM unnest(v.common) m))
                               FROM (SELECT s.histogram_bounds::text::int8[] AS bounds,
                                            s.most_common_vals::text::int8[] AS common
                                       FROM pg_stats s
                                      WHERE s.schemaname = n.nspname AND s.tablename = c.relname
                                        AND s.attname = a.attname AND NOT s.inherited
                                     OFFSET 0) v) END AS used,
                       CASE WHEN a.attinhcount > 0 THEN 'parent'
                            WHEN EXISTS (SELECT FROM pg_partitioned_table p
                                          WHERE p.partrelid = a.attrelid AND a.attnum = ANY (p.partattrs::int2[]))
                            THEN 'partition key'
                            WHEN y.base <> a.atttypid THEN 'domain' END AS type_is_kept_by,
                       ARRAY(SELECT DISTINCT pg_describe_object(u.classid, u.objid, 0)
                               FROM pg_depend u
                               LEFT JOIN pg_attrdef g ON u.classid = 'pg_attrdef'::regclass AND g.oid = u.objid
                              WHERE u.refclassid = 'pg_class'::regclass AND u.refobjid = a.attrelid
                                AND u.refobjsubid = a.attnum
                                AND (g.adnum <> a.attnum
                                     OR u.classid IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass,
                                                      'pg_policy'::regclass, 'pg_proc'::regclass,
                                                      'pg_publication_rel'::regclass))) AS used_by
                  FROM (SELECT i.indrelid, i.indkey[0] AS attnum, min(i.indexrelid) AS indexrelid
                          FROM pg_index i
                         WHERE i.indisunique AND i.indnkeyatts = 1
                         GROUP BY 1, 2
                         UNION ALL
                        SELECT k.conrelid, k.conkey[p], min(k.oid)
                          FROM pg_constraint k
                         CROSS JOIN generate_subscripts(k.conkey, 1) p
                          JOIN pg_attribute r ON r.attrelid = k.confrelid AND r.attnum = k.confkey[p]
                         WHERE k.contype = 'f' AND r.atttypid = 'int8'::regtype
                           AND NOT EXISTS (SELECT FROM pg_index i
                                            WHERE i.indrelid = k.conrelid AND i.indkey[0] = k.conkey[p]
                                              AND i.indisunique AND i.indnkeyatts = 1)
                         GROUP BY 1, 2) i
                  JOIN pg_class c ON c.oid = i.indrelid
                  JOIN pg_namespace n ON n.oid = c.relnamespace
                  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.attnum
                 CROSS JOIN LATERAL (SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END AS base
                                       FROM pg_type t WHERE t.oid = a.atttypid) y
                 CROSS JOIN LATERAL (SELECT has_column_privilege(c.oid, a.attnum, 'SELECT')
                                            AND NOT row_security_active(c.oid) AS readable) r
                 WHERE c.oid >= 16384 AND c.reltuples > 0
                   AND y.base IN ('int2'::regtype, 'int4'::regtype)
                   AND NOT EXISTS (SELECT FROM pg_depend d
                                    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
                                      AND d.refobjsubid = a.attnum AND d.classid = 'pg_class'::regclass
                                      AND d.deptype IN ('a', 'i')
                                      AND EXISTS (SELECT FROM pg_sequence q WHERE q.seqrelid = d.objid))) f) k
 WHERE (k.place <= 20 AND k.used > k.highest * 0.1)
    OR (k.place = 1 AND NOT k.readable)

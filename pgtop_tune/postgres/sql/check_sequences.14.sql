-- Sequences that can run out, their own limit or that of the column they feed being one of int4 or less: those past a
-- tenth of it, and one of those the role may not read, to tell that there are such. Owned columns are found by
-- pg_depend: 'a' for serial, 'i' for identity.
SELECT q.n_hidden,
       q.schema,
       q.name,
       q.table_schema,
       q.table_name,
       q.column_name,
       q.highest,
       q.used
  FROM (SELECT o.*,
               count(*) FILTER (WHERE NOT o.readable) OVER () AS n_hidden,
               row_number() OVER (PARTITION BY o.readable
                                      ORDER BY o.used::float8 / o.highest DESC NULLS LAST, o.oid) AS place
          FROM (SELECT c.oid,
                       n.nspname::text AS schema,
                       c.relname::text AS name,
                       tn.nspname::text AS table_schema,
                       t.relname::text AS table_name,
                       a.attname::text AS column_name,
                       least(s.seqmax, CASE a.atttypid WHEN 'int2'::regtype THEN 32767
                                                       WHEN 'int4'::regtype THEN 2147483647
                                                       ELSE s.seqmax END) AS highest,
                       r.readable,
                       CASE WHEN r.readable THEN pg_sequence_last_value(c.oid) END AS used
                  FROM pg_sequence s
                  JOIN pg_class c ON c.oid = s.seqrelid
                  JOIN pg_namespace n ON n.oid = c.relnamespace
                 CROSS JOIN LATERAL (SELECT has_sequence_privilege(c.oid, 'SELECT, USAGE') AS readable) r
                  LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
                                       AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0
                                       AND d.deptype IN ('a', 'i')
                  LEFT JOIN pg_class t ON t.oid = d.refobjid
                  LEFT JOIN pg_namespace tn ON tn.oid = t.relnamespace
                  LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
                 WHERE NOT s.seqcycle AND s.seqincrement > 0 AND s.seqmax > 0 AND c.relpersistence = 'p'
                   AND (s.seqmax <= 2147483647 OR a.atttypid IN ('int2'::regtype, 'int4'::regtype))) o) q
 WHERE (q.place <= 20 AND q.used > q.highest * 0.1)
    OR (q.place = 1 AND NOT q.readable)

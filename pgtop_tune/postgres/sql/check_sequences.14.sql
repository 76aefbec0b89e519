-- Sequences that can run out: those whose own limit, or that of the column they feed, is one of int4 or less.
-- Owned columns are found by pg_depend: 'a' for serial, 'i' for identity. One that the role may not read has no value.
SELECT n.nspname::text AS schema,
       c.relname::text AS name,
       tn.nspname::text AS table_schema,
       t.relname::text AS table_name,
       a.attname::text AS column_name,
       least(s.seqmax, CASE a.atttypid WHEN 'int2'::regtype THEN 32767 WHEN 'int4'::regtype THEN 2147483647
                       ELSE s.seqmax END) AS highest,
       has_sequence_privilege(c.oid, 'SELECT, USAGE') AS readable,
       CASE WHEN has_sequence_privilege(c.oid, 'SELECT, USAGE') THEN pg_sequence_last_value(c.oid) END AS used
  FROM pg_sequence s
  JOIN pg_class c ON c.oid = s.seqrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
                       AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
  LEFT JOIN pg_class t ON t.oid = d.refobjid
  LEFT JOIN pg_namespace tn ON tn.oid = t.relnamespace
  LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
 WHERE NOT s.seqcycle AND s.seqincrement > 0 AND c.relpersistence = 'p'
   AND (s.seqmax <= 2147483647 OR a.atttypid IN ('int2'::regtype, 'int4'::regtype))

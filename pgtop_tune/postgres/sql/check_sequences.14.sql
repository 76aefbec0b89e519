-- Sequences that can run out, their own limit or that of the column they feed being one of int4 or less: those past a
-- tenth of it, and one of those the role may not read, to tell that there are such. Owned columns are found by
-- pg_depend: 'a' for serial, 'i' for identity. One that cycles is meant to, unless a column takes its numbers. Descending ones count down from 0, or from
-- their MAXVALUE where they end above 0.
-- ALTER COLUMN TYPE fails where the column is a parent's, is a partition key, or is used by views, triggers, policies …
-- Reading a sequence locks it until the statement ends, and the table of locks is everybody's: 200 are read, first those
-- of no table, then those whose tables are largest or take most rows.
SELECT q.n_hidden,
       greatest(q.n_all - 200, 0) AS n_left_out,
       q.schema,
       q.name,
       q.table_schema,
       q.table_name,
       q.column_name,
       q.highest,
       q.used,
       q.type_is_kept_by,
       q.used_by,
       q.least,
       q.cycles
  FROM (SELECT o.*,
               count(*) FILTER (WHERE NOT o.readable) OVER () AS n_hidden,
               row_number() OVER (PARTITION BY o.readable
                                      ORDER BY o.used::float8 / o.highest DESC NULLS LAST, o.oid) AS place
          FROM (SELECT p.*, CASE WHEN p.readable THEN p.direction * (pg_sequence_last_value(p.oid) - p.origin) END AS used
                  FROM (SELECT c.oid,
                               n.nspname::text AS schema,
                               c.relname::text AS name,
                               tn.nspname::text AS table_schema,
                               t.relname::text AS table_name,
                               a.attname::text AS column_name,
                               e.direction,
                               e.origin,
                               s.seqcycle AS cycles,
                               CASE WHEN e.direction < 0 THEN s.seqmin END AS least,
                               least(e.most, CASE y.base WHEN 'int2'::regtype THEN 32767
                                                         WHEN 'int4'::regtype THEN 2147483647
                                                         ELSE e.most END) AS highest,
                               has_sequence_privilege(c.oid, 'SELECT, USAGE') AS readable,
                               count(*) OVER () AS n_all,
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
                          FROM pg_sequence s
                         CROSS JOIN LATERAL (SELECT sign(s.seqincrement)::int AS direction,
                                                    CASE WHEN s.seqincrement > 0 THEN s.seqmax
                                                         WHEN s.seqmin < 0 THEN -greatest(s.seqmin, -9223372036854775807)
                                                         ELSE s.seqmax - s.seqmin END AS most,
                                                    CASE WHEN s.seqincrement < 0 AND s.seqmin >= 0 THEN s.seqmax
                                                         ELSE 0 END AS origin) e
                          JOIN pg_class c ON c.oid = s.seqrelid
                          JOIN pg_namespace n ON n.oid = c.relnamespace
                          LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
                                               AND d.objsubid = 0 AND d.refclassid = 'pg_class'::regclass
                                               AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
                          LEFT JOIN pg_class t ON t.oid = d.refobjid
                          LEFT JOIN pg_namespace tn ON tn.oid = t.relnamespace
                          LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
                          LEFT JOIN LATERAL (SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END AS base
                                               FROM pg_type t WHERE t.oid = a.atttypid) y ON true
                         WHERE (NOT s.seqcycle OR d.refobjid IS NOT NULL
                                OR EXISTS (SELECT FROM pg_depend w
                                            WHERE w.refclassid = 'pg_class'::regclass AND w.refobjid = c.oid
                                              AND w.classid = 'pg_attrdef'::regclass))
                           AND e.most > 0 AND c.relpersistence = 'p'
                           AND (e.most <= 2147483648 OR y.base IN ('int2'::regtype, 'int4'::regtype))
                         ORDER BY t.oid IS NULL DESC,
                                  greatest(t.reltuples, pg_stat_get_tuples_inserted(t.oid)) DESC NULLS LAST, c.oid
                         LIMIT 200) p
                OFFSET 0) o) q
 WHERE (q.place <= 20 AND q.used > q.highest * 0.1)
    OR (q.place = 1 AND (NOT q.readable OR q.n_all > 200))

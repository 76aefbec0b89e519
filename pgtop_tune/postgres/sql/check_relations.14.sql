-- Conditions of tables and indexes, a thousand of each kind, ten indexes, with how many there are: the largest first. Not
-- those of extensions, whose makers chose them, nor the tables of pgbench and of our own data set: a benchmark's are meant to be as they are.
-- Functions that lock what they look at are left out: pg_partition_tree(), pg_get_publication_tables(); and
-- pg_get_indexdef() of a table that another session has locked or is about to.
WITH t AS MATERIALIZED (
  SELECT c.oid, c.relnamespace, c.relkind, c.relpersistence, c.relreplident, c.relispartition, c.reltuples, c.reloptions,
         c.reltoastrelid, c.relrowsecurity, c.relforcerowsecurity, n.nspname::text AS schema, c.relname::text AS name,
         c.relpages::bigint * current_setting('block_size')::int AS bytes
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't'
     AND n.nspname NOT IN ('pg_catalog', 'information_schema')
     AND NOT (c.relname::text ^@ 'pgbench_' AND c.relname ~ '^pgbench_(accounts|branches|history|tellers)(_[0-9]+)?$')
     AND NOT (n.nspname = 'bus' AND EXISTS (SELECT FROM pg_class b
                                             WHERE b.relnamespace = n.oid AND b.relname = 'dataset'))
     AND NOT EXISTS (SELECT FROM pg_depend d
                      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')),
stored AS MATERIALIZED (
  SELECT c.oid, c.relname::text AS name, c.reloptions
    FROM pg_class c
   WHERE c.relkind IN ('i', 't') AND c.reloptions IS NOT NULL),
b AS MATERIALIZED (
  SELECT i.indexrelid, i.indrelid, i.indnkeyatts, i.indnatts, i.indkey::int2[] AS columns, i.indclass::oid[] AS classes,
         i.indcollation::oid[] AS collations, i.indoption::int2[] AS options,
         NOT i.indisunique AND NOT i.indisreplident AND NOT i.indisclustered AND i.indnatts = i.indnkeyatts AS spare
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
   WHERE i.indexrelid >= 16384 AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
     AND c.relkind = 'i' AND c.relam = 403)
(SELECT 'no primary key' AS kind, count(*) OVER () AS n_all, ARRAY[t.schema, t.name] AS name, '' AS part, '' AS detail
   FROM t
  WHERE t.relkind IN ('r', 'p') AND NOT t.relispartition
    AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND i.indisprimary)
  ORDER BY t.bytes DESC, t.oid LIMIT 1000)
UNION ALL
(SELECT 'no replica identity', count(*) OVER (), ARRAY[t.schema, t.name], '',
        CASE t.relreplident WHEN 'n' THEN 'NOTHING' ELSE 'DEFAULT' END
   FROM t
  WHERE EXISTS (SELECT FROM pg_publication) AND t.relkind = 'r' AND t.relreplident IN ('d', 'n')
    AND (t.relreplident = 'n'
         OR NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND i.indisprimary))
    AND t.relpersistence = 'p'
    AND EXISTS (SELECT FROM pg_publication q
                 WHERE (q.pubupdate OR q.pubdelete)
                   AND (q.puballtables
                        OR EXISTS (SELECT FROM pg_publication_namespace s                        -- from 15
                                    WHERE s.pnpubid = q.oid AND s.pnnspid = t.relnamespace)      -- from 15
                        OR EXISTS (SELECT FROM pg_publication_rel r
                                    WHERE r.prpubid = q.oid
                                      AND (r.prrelid = t.oid
                                           OR (t.relispartition AND r.prrelid IN (SELECT a.relid
                                                                                    FROM pg_partition_ancestors(t.oid) a))))))
  ORDER BY t.bytes DESC, t.oid LIMIT 1000)
UNION ALL
(SELECT 'unlogged', count(*) OVER (), ARRAY[t.schema, t.name], '', ''
   FROM t
  WHERE t.relpersistence = 'u' AND t.relkind = 'r'
  ORDER BY t.bytes DESC, t.oid LIMIT 1000)
UNION ALL
(SELECT 'parent never analyzed', count(*) OVER (), ARRAY[t.schema, t.name], '', ''
   FROM t
  WHERE t.relkind = 'p' AND NOT t.relispartition AND t.reltuples < 0
    AND EXISTS (WITH RECURSIVE l AS (SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = t.oid
                                      UNION ALL
                                     SELECT h.inhrelid FROM l JOIN pg_inherits h ON h.inhparent = l.inhrelid)
                SELECT FROM l JOIN pg_class c ON c.oid = l.inhrelid
                 WHERE c.relkind = 'r' AND greatest(c.reltuples, pg_stat_get_live_tuples(c.oid)) >= 1000)
  ORDER BY t.oid LIMIT 1000)
UNION ALL
(SELECT 'not validated', count(*) OVER (), ARRAY[t.schema, t.name], k.conname::text, ''
   FROM t
   JOIN pg_constraint k ON k.conrelid = t.oid
  WHERE NOT k.convalidated AND k.conparentid = 0
    AND k.conenforced -- from 18
  ORDER BY t.bytes DESC, k.oid LIMIT 1000)
UNION ALL
(SELECT 'foreign key off', count(*) OVER (), ARRAY[t.schema, t.name], g.tgname::text, k.conname::text
   FROM t
   JOIN pg_trigger g ON g.tgrelid = t.oid
   JOIN pg_constraint k ON k.oid = g.tgconstraint
  WHERE g.tgisinternal AND g.tgenabled = 'D' AND k.contype = 'f'
  ORDER BY t.bytes DESC, g.oid LIMIT 1000)
UNION ALL
(SELECT 'trigger off', count(*) OVER (), ARRAY[t.schema, t.name], g.tgname::text, ''
   FROM t
   JOIN pg_trigger g ON g.tgrelid = t.oid
  WHERE NOT g.tgisinternal AND g.tgenabled = 'D'
    AND NOT EXISTS (SELECT FROM pg_trigger p WHERE p.oid = g.tgparentid AND p.tgenabled = 'D')
  ORDER BY t.bytes DESC, g.oid LIMIT 1000)
UNION ALL
(SELECT 'rule off', count(*) OVER (), ARRAY[t.schema, t.name], r.rulename::text, ''
   FROM t
   JOIN pg_rewrite r ON r.ev_class = t.oid
  WHERE r.ev_enabled = 'D'
  ORDER BY t.bytes DESC, r.oid LIMIT 1000)
UNION ALL
(SELECT 'partitioned index', count(*) OVER (), ARRAY[t.schema, c.relname::text], t.name, ''
   FROM t
   JOIN pg_index i ON i.indrelid = t.oid
   JOIN pg_class c ON c.oid = i.indexrelid
  WHERE t.relkind = 'p' AND NOT i.indisvalid
    AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)
  ORDER BY c.oid LIMIT 1000)
UNION ALL
(SELECT 'row security off', count(*) OVER (), ARRAY[t.schema, t.name], '', ''
   FROM t
  WHERE NOT t.relrowsecurity
    AND (t.relforcerowsecurity OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = t.oid))
  ORDER BY t.bytes DESC, t.oid LIMIT 1000)
UNION ALL
(SELECT 'no policy', count(*) OVER (), ARRAY[t.schema, t.name], '', ''
   FROM t
  WHERE t.relrowsecurity AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = t.oid)
  ORDER BY t.bytes DESC, t.oid LIMIT 1000)
UNION ALL
(SELECT 'default partition', count(*) OVER (), ARRAY[t.schema, t.name], p.partrelid::regclass::text, ''
   FROM t
   JOIN pg_partitioned_table p ON p.partdefid = t.oid
  WHERE greatest(t.reltuples, pg_stat_get_live_tuples(t.oid)) >= 1
  ORDER BY t.bytes DESC, t.oid LIMIT 1000)
UNION ALL
(SELECT 'many indexes', count(*) OVER (), ARRAY[t.schema, t.name], '', ''
   FROM t
   JOIN (SELECT i.indrelid
           FROM pg_index i
          WHERE i.indrelid >= 16384 AND i.indisvalid AND i.indnatts = 1 AND NOT i.indisunique AND i.indpred IS NULL
          GROUP BY i.indrelid
         HAVING count(*) >= 15) i ON i.indrelid = t.oid
  WHERE NOT t.relispartition
  ORDER BY t.bytes DESC, t.oid LIMIT 1000)
UNION ALL
(SELECT 'fillfactor', count(*) OVER (), ARRAY[f.schema, f.name], substr(o.option, 12), ''
   FROM (SELECT t.schema, t.name, t.bytes, t.oid, t.reloptions FROM t WHERE t.reloptions IS NOT NULL
          UNION ALL
         SELECT t.schema, w.name, t.bytes, w.oid, w.reloptions
           FROM stored w
           JOIN pg_index i ON i.indexrelid = w.oid
           JOIN t ON t.oid = i.indrelid) f
  CROSS JOIN LATERAL unnest(f.reloptions) o (option)
  WHERE o.option ~ '^fillfactor=[1-4]?[0-9]$'
  ORDER BY f.bytes DESC, f.oid LIMIT 1000)
UNION ALL
(SELECT 'no statistics', count(*) OVER (), ARRAY[t.schema, t.name], a.attname::text, ''
   FROM t
   JOIN pg_attribute a ON a.attrelid = t.oid
   JOIN pg_type y ON y.oid = a.atttypid
  WHERE a.attstattarget = 0 AND a.attnum > 0 AND NOT a.attisdropped
    AND (y.typcategory <> 'U'
         OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = t.oid AND a.attnum = ANY (i.indkey::int2[])))
  ORDER BY t.bytes DESC, t.oid, a.attnum LIMIT 1000)
UNION ALL
(SELECT 'large objects', m.number, ARRAY[current_database()::text], '', ''
   FROM (SELECT greatest(c.reltuples, pg_stat_get_live_tuples(c.oid))::bigint AS number
           FROM pg_class c
          WHERE c.oid = 'pg_largeobject_metadata'::regclass) m
  WHERE m.number >= 1000)
UNION ALL
(SELECT 'rarely vacuumed', count(*) OVER (), ARRAY[t.schema, t.name], o.option, o.value
   FROM (SELECT t.schema, t.name, t.bytes, t.oid, t.reloptions, '' AS toast FROM t WHERE t.reloptions IS NOT NULL
          UNION ALL
         SELECT t.schema, t.name, t.bytes, t.oid, w.reloptions, 'toast.'
           FROM stored w
           JOIN t ON t.reltoastrelid = w.oid) t
  CROSS JOIN LATERAL (SELECT t.toast || split_part(u, '=', 1) AS option, split_part(u, '=', 2) AS value
                        FROM unnest(t.reloptions) u) o
   LEFT JOIN (VALUES ('autovacuum_vacuum_scale_factor', 0.5), ('autovacuum_analyze_scale_factor', 0.5),
                ('autovacuum_vacuum_threshold', 1000000), ('autovacuum_analyze_threshold', 1000000),
                ('autovacuum_vacuum_cost_delay', 20), ('autovacuum_freeze_max_age', 1000000000)) m (option, most)
     ON m.option = replace(o.option, 'toast.', '')
  WHERE CASE WHEN o.value ~ '^[0-9]{1,15}([.][0-9]{1,15})?$' AND m.most IS NOT NULL THEN o.value::numeric > m.most
             WHEN o.option IN ('toast.autovacuum_enabled', 'vacuum_index_cleanup', 'toast.vacuum_index_cleanup')
             THEN lower(o.value) IN ('0', 'of', 'off', 'n', 'no', 'f', 'fa', 'fal', 'fals', 'false') END
  ORDER BY t.bytes DESC, t.oid, o.option LIMIT 1000)
UNION ALL
(SELECT 'prefix of an index', count(*) OVER (), ARRAY[t.schema, c.relname::text],
        (SELECT min(l.relname::text) FROM b w JOIN pg_class l ON l.oid = w.indexrelid
          WHERE w.indrelid = s.indrelid AND w.indnkeyatts > 1 AND w.indnkeyatts > s.indnkeyatts
            AND w.columns[0:s.indnkeyatts - 1] = s.columns[0:s.indnkeyatts - 1]
            AND w.classes[0:s.indnkeyatts - 1] = s.classes[0:s.indnkeyatts - 1]
            AND w.collations[0:s.indnkeyatts - 1] = s.collations[0:s.indnkeyatts - 1]
            AND w.options[0:s.indnkeyatts - 1] = s.options[0:s.indnkeyatts - 1]),
        CASE WHEN NOT EXISTS (SELECT FROM pg_locks x
                               WHERE x.relation = s.indrelid AND x.mode = 'AccessExclusiveLock'
                                 AND x.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
             THEN pg_get_indexdef(s.indexrelid) ELSE '' END
   FROM b s
   JOIN t ON t.oid = s.indrelid
   JOIN pg_class c ON c.oid = s.indexrelid
  WHERE s.spare
    AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = s.indexrelid)
    AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = s.indexrelid)
    AND EXISTS (SELECT FROM b w
                 WHERE w.indrelid = s.indrelid AND w.indnkeyatts > 1 AND w.indnkeyatts > s.indnkeyatts
                   AND w.columns[0:s.indnkeyatts - 1] = s.columns[0:s.indnkeyatts - 1]
                   AND w.classes[0:s.indnkeyatts - 1] = s.classes[0:s.indnkeyatts - 1]
                   AND w.collations[0:s.indnkeyatts - 1] = s.collations[0:s.indnkeyatts - 1]
                   AND w.options[0:s.indnkeyatts - 1] = s.options[0:s.indnkeyatts - 1])
  ORDER BY c.relpages DESC, c.oid LIMIT 10)

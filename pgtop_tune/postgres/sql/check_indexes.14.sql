-- Indexes that are invalid, the same as another, or never used. One that is being built is not invalid yet.
SELECT u.n_indexes,
       n.nspname::text AS schema,
       u.name,
       u.table_name,
       u.bytes,
       u.valid,
       u.uniq AS is_unique,
       u.computes,
       (SELECT s.spcname::text FROM pg_tablespace s WHERE s.oid = u.reltablespace) AS tablespace,
       u.scans,
       CASE WHEN u.valid AND u.spare AND u.same_as <> u.oid THEN u.same_as_name END AS same_as,
       u.unused,
       pg_get_indexdef(u.oid) AS definition
  FROM (SELECT d.*, row_number() OVER (ORDER BY d.unused DESC, d.bytes DESC, d.oid) AS by_unused
          FROM (SELECT x.*,
                       x.valid AND x.scans = 0 AND NOT x.required AND NOT x.uniq AS unused,
                       count(*) OVER () AS n_indexes,
                       first_value(x.oid) OVER same AS same_as,
                       first_value(x.name) OVER same AS same_as_name,
                       NOT x.required AND (first_value(x.keeps_unique) OVER same OR NOT x.uniq) AS spare
                  FROM (SELECT c.oid, c.relnamespace, c.reltablespace, i.indrelid,
                               c.relname::text AS name,
                               coalesce((SELECT o.relname FROM pg_class o
                                          WHERE t.relkind = 't' AND o.reltoastrelid = t.oid), t.relname)::text
                                   AS table_name,
                               c.relpages::bigint * current_setting('block_size')::int AS bytes,
                               i.indisvalid AS valid,
                               coalesce(pg_stat_get_numscans(c.oid), 0) AS scans,
                               i.indisreplident OR i.indisclustered
                               OR EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = c.oid)
                               OR EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = c.oid) AS required,
                               i.indisunique AS uniq,
                               i.indexprs IS NOT NULL OR i.indpred IS NOT NULL AS computes,
                               i.indisunique AND i.indimmediate AS keeps_unique,
                               row_number() OVER (PARTITION BY i.indrelid
                                   ORDER BY i.indisvalid DESC, i.indisprimary DESC, i.indisreplident DESC,
                                            EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = c.oid) DESC,
                                            i.indisunique DESC, c.oid) AS worth,
                               concat_ws(' ', c.relam, i.indnkeyatts, '(' || i.indkey::text || ')',
                                         '(' || i.indclass::text || ')', '(' || i.indcollation::text || ')',
                                         '(' || i.indoption::text || ')',
                                         'x' || pg_get_expr(i.indexprs, i.indrelid),
                                         'w' || pg_get_expr(i.indpred, i.indrelid),
                                         CASE WHEN to_jsonb(i) ->> 'indnullsnotdistinct' = 'true' THEN 'n' END)
                                   AS definition
                          FROM pg_index i
                          JOIN pg_class c ON c.oid = i.indexrelid
                          JOIN pg_class t ON t.oid = i.indrelid
                         WHERE c.oid >= 16384 AND c.relkind = 'i'
                           AND (t.relkind IN ('r', 'm') OR (t.relkind = 't' AND NOT i.indisvalid))
                           AND c.relpersistence <> 't'
                           AND NOT EXISTS (SELECT FROM pg_stat_get_progress_info('CREATE INDEX') g
                                            WHERE g.datid = (SELECT oid FROM pg_database
                                                              WHERE datname = current_database())
                                              AND NOT i.indisvalid
                                              AND (g.relid IN (i.indrelid, t.reltoastrelid)
                                                   OR g.relid IN (SELECT o.oid FROM pg_class o
                                                                   WHERE o.reltoastrelid = t.oid)))) x
                WINDOW same AS (PARTITION BY x.indrelid, x.valid, x.definition ORDER BY x.worth)) d) u
  JOIN pg_namespace n ON n.oid = u.relnamespace
 WHERE NOT u.valid
    OR (u.spare AND u.same_as <> u.oid)
    OR (u.unused AND u.by_unused <= 20)
 ORDER BY u.oid
 LIMIT 200

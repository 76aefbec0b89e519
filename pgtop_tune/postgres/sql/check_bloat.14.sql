-- How much larger tables and B-trees are than their rows need, as far as the statistics tell. Estimated from the page
-- layout of the manual ("Database Page Layout"): a page has 24 bytes of header, a row 4 bytes of item pointer, 23 of
-- header and a bit per column where one may be null, both rounded up to 8, and its data. An index entry has 4 and 8,
-- a leaf page 16 bytes at its end. Columns whose statistics the role may not see leave the row without an estimate.
SELECT m.n_hidden,
       n.nspname::text AS schema,
       m.relname::text AS name,
       CASE WHEN m.relkind = 'i' THEN 'index' ELSE 'table' END AS kind,
       t.relname::text AS table_name,
       m.bytes,
       m.needed_bytes,
       m.excludes
  FROM (SELECT e.*, count(*) FILTER (WHERE e.needed_bytes IS NULL) OVER () AS n_hidden,
               row_number() OVER (ORDER BY e.bytes - e.needed_bytes DESC NULLS LAST, e.oid) AS place
          FROM (SELECT r.oid, r.relnamespace, r.relname, r.relkind, r.table_oid, r.excludes,
                       r.relpages::bigint * p.page AS bytes,
                       CASE WHEN w.width IS NOT NULL THEN
                       (ceil(r.reltuples / greatest(floor((p.page - r.page_overhead) * r.fill / 100.0
                             / (r.row_overhead + ceil(w.width / 8) * 8)), 1)) * p.page)::bigint
                       END AS needed_bytes
                  FROM (SELECT c.oid, c.relnamespace, c.relname, c.relkind, c.relpages, c.reltuples,
                               coalesce(i.indrelid, c.oid) AS table_oid,
                               i.indkey,
                               coalesce(i.indisexclusion, false) AS excludes,
                               CASE WHEN c.relkind = 'i' THEN i.indnatts ELSE c.relnatts END AS columns,
                               CASE WHEN c.relkind = 'i' THEN 40 ELSE 24 END AS page_overhead,
                               CASE WHEN c.relkind = 'i' THEN 12 ELSE 28 END
                               + CASE WHEN c.relkind <> 'i' AND c.relnatts > 8 THEN ceil((c.relnatts - 8) / 64.0) * 8
                                      ELSE 0 END AS row_overhead,
                               coalesce((SELECT o.option_value::int FROM pg_options_to_table(c.reloptions) o
                                          WHERE o.option_name = 'fillfactor'),
                                        CASE WHEN c.relkind = 'i' THEN 90 ELSE 100 END) AS fill
                          FROM pg_class c
                          LEFT JOIN pg_index i ON i.indexrelid = c.oid
                         WHERE c.relkind IN ('r', 'm', 'i') AND c.relpersistence <> 't'
                           AND c.relpages >= 128 AND c.reltuples > 0 AND c.oid >= 16384
                           AND (c.relkind <> 'i' OR c.relam = 403)
                         ORDER BY c.relpages DESC
                         LIMIT 1000) r
                 CROSS JOIN (SELECT current_setting('block_size')::int AS page) p
                 CROSS JOIN LATERAL (
                       SELECT CASE WHEN count(*) = count(s.width) AND count(*) > 0 THEN sum(s.width) END AS width
                         FROM pg_attribute a
                         JOIN pg_class k ON k.oid = r.table_oid
                         JOIN pg_namespace kn ON kn.oid = k.relnamespace
                         LEFT JOIN LATERAL (
                              SELECT max(v.avg_width * (1 - v.null_frac)) AS width FROM pg_stats v
                               WHERE v.schemaname = kn.nspname AND v.tablename = k.relname AND v.attname = a.attname) s
                           ON true
                        WHERE a.attrelid = r.table_oid AND a.attnum > 0 AND NOT a.attisdropped
                          AND (r.indkey IS NULL OR a.attnum = ANY (r.indkey::int2[]))
                       HAVING r.indkey IS NULL OR count(*) = r.columns) w) e) m
  JOIN pg_namespace n ON n.oid = m.relnamespace
  JOIN pg_class t ON t.oid = m.table_oid
 WHERE m.place <= 20
 ORDER BY m.place

-- Foreign keys whose columns are not the first ones of any index of their table: the largest tables first. A partial
-- index counts where its condition is only that columns of the key are not null, which the search for a key implies. With names
-- that no relation of the schema has, as many as there are rows: several keys may come to the same name. Not those of
-- pgbench, which never deletes what they refer to.
SELECT f.*,
       ARRAY(SELECT o.name
               FROM (SELECT left(b.base, b.fitting) || '_idx' || coalesce(nullif(g.number, 0)::text, '') AS name,
                            g.number
                       FROM (SELECT x.base, (SELECT max(k) FROM generate_series(1, 63) k
                                              WHERE octet_length(left(x.base, k)) <= 57) AS fitting
                               FROM (SELECT f.table_name || '_' || array_to_string(f.columns, '_') AS base) x) b
                      CROSS JOIN generate_series(0, 50) g (number)) o
              WHERE NOT EXISTS (SELECT FROM pg_class c
                                  JOIN pg_namespace n ON n.oid = c.relnamespace
                                 WHERE n.nspname = f.schema AND c.relname = o.name)
              ORDER BY o.number
              LIMIT 20) AS free_names
  FROM (SELECT n.nspname::text AS schema,
               t.relname::text AS table_name,
               k.conname::text AS name,
               (SELECT array_agg(a.attname::text ORDER BY o.place)
                  FROM unnest(k.conkey) WITH ORDINALITY o (attnum, place)
                  JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = o.attnum) AS columns,
               rn.nspname::text AS referenced_schema,
               r.relname::text AS referenced_table,
               t.relpages::bigint * current_setting('block_size')::int AS bytes,
               greatest(t.reltuples, pg_stat_get_live_tuples(t.oid), 0)::bigint AS tuples,
               count(*) OVER () AS n_all,
               t.relkind = 'p' AS partitioned
          FROM pg_constraint k
          JOIN pg_class t ON t.oid = k.conrelid
          JOIN pg_namespace n ON n.oid = t.relnamespace
          JOIN pg_class r ON r.oid = k.confrelid
          JOIN pg_namespace rn ON rn.oid = r.relnamespace
         WHERE k.contype = 'f' AND k.conparentid = 0 AND t.relpersistence <> 't'
           AND t.relname !~ '^pgbench_(accounts|history|tellers)$'
           AND NOT EXISTS (SELECT FROM pg_index i
                            WHERE i.indrelid = k.conrelid AND i.indisvalid
                              AND (i.indpred IS NULL
                                   OR (i.indpred::text ~ ('^({BOOLEXPR :boolop and :args [(])?({NULLTEST :arg {VAR '
                                                          '[^{}]*} :nulltesttype 1 [^{}]*} ?)+([)] :location -?[0-9]+})?$')
                                       AND (SELECT bool_and(m[1]::int2 = ANY (k.conkey))
                                              FROM regexp_matches(i.indpred::text, ':varattno ([0-9]+)', 'g') m)))
                              AND (i.indkey::int2[])[0:cardinality(k.conkey) - 1] @> k.conkey)
         ORDER BY t.relpages DESC, k.oid
         LIMIT 20) f

-- This database as a whole: who may create objects in which schema, and tables of pgbench.
SELECT current_database()::text AS name,
       (SELECT coalesce(array_agg(n.nspname::text ORDER BY n.nspname), '{}') FROM pg_namespace n
         WHERE EXISTS (SELECT FROM aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
                        WHERE x.grantee = 0 AND x.privilege_type = 'CREATE')) AS open_schemas,
       (SELECT max(CASE WHEN c.reltuples >= 0 THEN c.reltuples ELSE pg_stat_get_live_tuples(c.oid) END)::bigint
          FROM pg_class c
         WHERE c.relname = 'pgbench_branches' AND c.relkind IN ('r', 'p')) AS pgbench_scale,
       (SELECT bool_or(c.relpersistence = 'u') FROM pg_class c
         WHERE c.relname = 'pgbench_accounts' AND c.relkind IN ('r', 'p')) AS pgbench_unlogged,
       (date_part('epoch', pg_stat_get_db_stat_reset_time((SELECT oid FROM pg_database
                                                            WHERE datname = current_database()))) * 1000)::bigint
           AS stats_reset_ms

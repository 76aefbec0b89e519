-- Tables of this database that are first by one of the things a check asks for; all counted, and the worst named.
-- Sizes are of the last VACUUM or ANALYZE: asking the files would take a lock on every table.
SELECT b.n_tables,
       b.n_never_analyzed,
       n.nspname::text AS schema,
       b.relname::text AS name,
       b.relpages::bigint * current_setting('block_size')::int AS bytes,
       greatest(b.reltuples, 0)::bigint AS tuples,
       b.live,
       b.dead,
       b.modified,
       b.never_analyzed,
       (date_part('epoch', greatest(b.vacuumed, b.autovacuumed)) * 1000)::bigint AS last_vacuum_ms,
       (date_part('epoch', greatest(b.analyzed, b.autoanalyzed)) * 1000)::bigint AS last_analyze_ms,
       b.xid_age,
       b.multixact_age,
       b.autovacuum
  FROM (SELECT a.*,
               count(*) OVER () AS n_tables,
               count(*) FILTER (WHERE a.never_analyzed) OVER () AS n_never_analyzed,
               row_number() OVER (ORDER BY a.dead DESC NULLS LAST, a.oid) AS by_dead,
               row_number() OVER (ORDER BY a.modified DESC NULLS LAST, a.oid) AS by_modified,
               row_number() OVER (ORDER BY a.never_analyzed DESC, a.live DESC NULLS LAST, a.oid) AS by_never,
               row_number() OVER (ORDER BY a.xid_age DESC NULLS LAST, a.oid) AS by_xid,
               row_number() OVER (ORDER BY a.multixact_age DESC NULLS LAST, a.oid) AS by_multixact,
               row_number() OVER (ORDER BY a.autovacuum, a.relpages DESC, a.oid) AS by_autovacuum
          FROM (SELECT c.oid, c.relnamespace, c.relname, c.relpages, c.reltuples,
                       pg_stat_get_live_tuples(c.oid) AS live,
                       pg_stat_get_dead_tuples(c.oid) AS dead,
                       pg_stat_get_mod_since_analyze(c.oid) AS modified,
                       pg_stat_get_last_vacuum_time(c.oid) AS vacuumed,
                       pg_stat_get_last_autovacuum_time(c.oid) AS autovacuumed,
                       pg_stat_get_last_analyze_time(c.oid) AS analyzed,
                       pg_stat_get_last_autoanalyze_time(c.oid) AS autoanalyzed,
                       -- reltuples is -1 until the first VACUUM or ANALYZE, whose moments a reset of counters forgets.
                       c.reltuples < 0 AND pg_stat_get_live_tuples(c.oid) > 0 AS never_analyzed,
                       CASE WHEN c.relfrozenxid <> '0'::xid THEN age(c.relfrozenxid) END AS xid_age,
                       CASE WHEN c.relminmxid <> '0'::xid THEN mxid_age(c.relminmxid) END AS multixact_age,
                       coalesce((SELECT o.option_value::bool FROM pg_options_to_table(c.reloptions) o
                                  WHERE o.option_name = 'autovacuum_enabled'), true) AS autovacuum
                  FROM pg_class c
                 WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
                   AND c.oid >= 16384) a) b
  JOIN pg_namespace n ON n.oid = b.relnamespace
 WHERE least(b.by_dead, b.by_modified, b.by_xid, b.by_multixact) <= 20
    OR (b.never_analyzed AND b.by_never <= 20)
    OR (NOT b.autovacuum AND b.by_autovacuum <= 20)
 ORDER BY b.oid

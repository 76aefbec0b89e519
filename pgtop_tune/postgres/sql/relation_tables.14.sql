-- The tables named by oid. A TOAST table is called after its table, whose oid is in its name, and has its options.
-- 16 counts updates that went to another page; 18 sums the time of vacuum and analyze and knows how many pages are frozen;
-- 19 tells how urgent autovacuum finds a table.
SELECT c.oid,
       CASE WHEN o.oid IS NULL THEN n.nspname || '.' || c.relname
            ELSE (SELECT p.nspname FROM pg_namespace p WHERE p.oid = o.relnamespace) || '.' || o.relname END AS name,
       CASE c.relkind WHEN 'm' THEN 'matview' WHEN 't' THEN 'toast' ELSE 'table' END AS kind,
       pg_stat_get_numscans(c.oid) AS seq_scan,
       pg_stat_get_tuples_returned(c.oid) AS seq_tup_read,
       coalesce(x.scans, 0) AS idx_scan,
       coalesce(x.fetched, 0) + pg_stat_get_tuples_fetched(c.oid) AS idx_tup_fetch,
       pg_stat_get_tuples_inserted(c.oid) AS n_tup_ins,
       pg_stat_get_tuples_updated(c.oid) AS n_tup_upd,
       pg_stat_get_tuples_deleted(c.oid) AS n_tup_del,
       pg_stat_get_tuples_hot_updated(c.oid) AS n_tup_hot_upd,
       NULL::bigint AS newpage_upd,  -- until 15
       pg_stat_get_tuples_newpage_updated(c.oid) AS newpage_upd,  -- from 16
       pg_stat_get_live_tuples(c.oid) AS n_live_tup,
       pg_stat_get_dead_tuples(c.oid) AS n_dead_tup,
       pg_stat_get_mod_since_analyze(c.oid) AS n_mod_since_analyze,
       pg_stat_get_ins_since_vacuum(c.oid) AS n_ins_since_vacuum,
       (date_part('epoch', pg_stat_get_last_vacuum_time(c.oid)) * 1000)::bigint AS last_vacuum_ms,
       (date_part('epoch', pg_stat_get_last_autovacuum_time(c.oid)) * 1000)::bigint AS last_autovacuum_ms,
       (date_part('epoch', pg_stat_get_last_analyze_time(c.oid)) * 1000)::bigint AS last_analyze_ms,
       (date_part('epoch', pg_stat_get_last_autoanalyze_time(c.oid)) * 1000)::bigint AS last_autoanalyze_ms,
       pg_stat_get_vacuum_count(c.oid) AS vacuum_count,
       pg_stat_get_autovacuum_count(c.oid) AS autovacuum_count,
       pg_stat_get_analyze_count(c.oid) AS analyze_count,
       pg_stat_get_autoanalyze_count(c.oid) AS autoanalyze_count,
       NULL::float8 AS vacuum_ms,  -- until 17
       NULL::float8 AS analyze_ms,  -- until 17
       pg_stat_get_total_vacuum_time(c.oid) + pg_stat_get_total_autovacuum_time(c.oid) AS vacuum_ms,  -- from 18
       pg_stat_get_total_analyze_time(c.oid) + pg_stat_get_total_autoanalyze_time(c.oid) AS analyze_ms,  -- from 18
       pg_stat_get_blocks_fetched(c.oid) - pg_stat_get_blocks_hit(c.oid) AS blks_read,
       pg_stat_get_blocks_hit(c.oid) AS blks_hit,
       c.reltuples::bigint AS tuples,
       c.relpages AS pages,
       NULL::int AS frozen_pages,  -- until 17
       c.relallfrozen AS frozen_pages,  -- from 18
       c.relfrozenxid AS frozen_xid,
       c.relminmxid AS min_multixact,
       NULL::float8 AS autovacuum_score,  -- until 18
       s.score AS autovacuum_score,  -- from 19
       coalesce(c.reloptions, o.reloptions, '{}') AS options
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_class o ON c.relkind = 't' AND o.oid = substring(c.relname FROM '^pg_toast_([0-9]+)$')::oid
  LEFT JOIN LATERAL (SELECT sum(pg_stat_get_numscans(i.indexrelid))::bigint AS scans,
                            sum(pg_stat_get_tuples_fetched(i.indexrelid))::bigint AS fetched
                       FROM pg_index i WHERE i.indrelid = c.oid) x ON true
  LEFT JOIN pg_stat_get_autovacuum_scores() s ON s.oid = c.oid  -- from 19
 WHERE c.oid = ANY($1::oid[])

-- Indexes of the tables named by oid; those of TOAST tables are nobody's to drop. 16 knows when an index was last used.
SELECT i.indexrelid AS oid,
       i.indrelid AS table_oid,
       n.nspname || '.' || c.relname AS name,
       tn.nspname || '.' || t.relname AS table,
       i.indisunique OR i.indisexclusion AS is_constraint,
       i.indisvalid AS is_valid,
       pg_stat_get_numscans(c.oid) AS idx_scan,
       pg_stat_get_tuples_returned(c.oid) AS idx_tup_read,
       pg_stat_get_tuples_fetched(c.oid) AS idx_tup_fetch,
       pg_stat_get_blocks_fetched(c.oid) - pg_stat_get_blocks_hit(c.oid) AS blks_read,
       pg_stat_get_blocks_hit(c.oid) AS blks_hit,
       NULL::bigint AS last_scan_ms,  -- until 15
       (date_part('epoch', pg_stat_get_lastscan(c.oid)) * 1000)::bigint AS last_scan_ms,  -- from 16
       c.relpages AS pages
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_class t ON t.oid = i.indrelid
  JOIN pg_namespace tn ON tn.oid = t.relnamespace
 WHERE i.indrelid = ANY($1::oid[]) AND c.relkind = 'i' AND t.relkind <> 't'

-- One line per table: how much it was used so far, its own scans and those of its indexes, so that what changed is
-- known before anything else is read. Counters straight from their functions; no locks, no sizes.
SELECT coalesce(i.indrelid, c.oid) AS oid,
       sum(pg_stat_get_numscans(c.oid) + pg_stat_get_blocks_fetched(c.oid))::bigint AS used,
       max(CASE WHEN c.relkind <> 'i' THEN pg_stat_get_dead_tuples(c.oid) END) AS dead,
       max(CASE WHEN c.relfrozenxid <> '0'::xid THEN age(c.relfrozenxid) END) AS xid_age,
       max(CASE WHEN c.relkind <> 'i' THEN c.relpages END) AS pages
  FROM pg_class c
  LEFT JOIN pg_index i ON i.indexrelid = c.oid
 WHERE c.relkind IN ('r', 'm', 't', 'i')
 GROUP BY 1

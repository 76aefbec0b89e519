-- One row with nulls when there is no slot. 16 tells which slots of a standby recovery made useless, 17 since when nobody uses a
-- slot and why it is invalid, 19 how often decoding ran out of memory and why a slot is not synchronised.
SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms,
       (CASE WHEN pg_is_in_recovery() THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) ELSE pg_current_wal_insert_lsn() END - '0/0'::pg_lsn)::bigint AS lsn_bytes,
       ((age('3'::xid)::bigint + 3) & 4294967295) AS next_xid,
       s.slot_name::text AS slot_name,
       s.slot_type,
       s.plugin::text AS plugin,
       s.database::text AS database,
       s.temporary,
       s.active_pid,
       s.xmin,
       s.catalog_xmin,
       (s.restart_lsn - '0/0'::pg_lsn)::bigint AS restart_lsn_bytes,
       (s.confirmed_flush_lsn - '0/0'::pg_lsn)::bigint AS confirmed_lsn_bytes,
       s.wal_status,
       s.safe_wal_size AS safe_wal_bytes,
       NULL::bigint AS inactive_since_ms,  -- until 16
       '' AS invalid,  -- until 15
       CASE WHEN s.conflicting THEN 'conflicting' ELSE '' END AS invalid,  -- from 16 until 16
       NULL::bool AS failover,  -- until 16
       (date_part('epoch', s.inactive_since) * 1000)::bigint AS inactive_since_ms,  -- from 17
       coalesce(s.invalidation_reason, '') AS invalid,  -- from 17
       s.failover AS failover,  -- from 17
       s.two_phase,
       NULL::bigint AS mem_exceeded,  -- until 18
       NULL::bigint AS sync_skips,  -- until 18
       '' AS sync_skip_reason,  -- until 18
       t.mem_exceeded_count AS mem_exceeded,  -- from 19
       t.slotsync_skip_count AS sync_skips,  -- from 19
       coalesce(s.slotsync_skip_reason, '') AS sync_skip_reason,  -- from 19
       t.spill_txns,
       t.spill_bytes,
       t.stream_txns,
       t.stream_bytes,
       t.total_txns,
       t.total_bytes,
       (date_part('epoch', t.stats_reset) * 1000)::bigint AS stats_reset_ms
  FROM (SELECT 1) one
  LEFT JOIN pg_replication_slots s ON true
  LEFT JOIN LATERAL pg_stat_get_replication_slot(s.slot_name::text) t ON s.slot_type = 'logical'

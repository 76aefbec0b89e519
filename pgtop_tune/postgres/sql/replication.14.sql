-- One row per sender, one with nulls when there is none. Sessions are looked up by pid: nothing is read for nobody.
-- CASE keeps the functions of a primary from being called on a standby, and the other way round.
SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms,
       pg_is_in_recovery() AS in_recovery,
       (CASE WHEN pg_is_in_recovery() THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) ELSE pg_current_wal_flush_lsn() END - '0/0'::pg_lsn)::bigint AS lsn_bytes,
       v.pid AS receiver_pid,
       v.status,
       coalesce(v.sender_host || ':' || v.sender_port, '') AS sender,
       v.slot_name,
       (v.flushed_lsn - '0/0'::pg_lsn)::bigint AS received_lsn_bytes,
       (v.latest_end_lsn - '0/0'::pg_lsn)::bigint AS latest_end_lsn_bytes,
       (date_part('epoch', v.last_msg_receipt_time) * 1000)::bigint AS message_ms,
       CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint END AS standby_replay_lsn_bytes,
       CASE WHEN pg_is_in_recovery() THEN (date_part('epoch', pg_last_xact_replay_timestamp()) * 1000)::bigint END AS replayed_xact_ms,
       CASE WHEN pg_is_in_recovery() THEN pg_get_wal_replay_pause_state() ELSE '' END AS replay_state,
       NULL::int AS replay_timeline,  -- until 18
       NULL::bigint AS caught_up_ms,  -- until 18
       NULL::bool AS promoting,  -- until 18
       y.last_replayed_tli AS replay_timeline,  -- from 19
       (date_part('epoch', y.current_chunk_start_time) * 1000)::bigint AS caught_up_ms,  -- from 19
       y.promote_triggered AS promoting,  -- from 19
       w.pid,
       CASE WHEN a.usesysid IS NOT NULL THEN pg_get_userbyid(a.usesysid)::text END AS usename,
       a.application_name,
       CASE WHEN a.client_port = -1 THEN 'local' ELSE host(a.client_addr) END AS client,
       w.state,
       (w.sent_lsn - '0/0'::pg_lsn)::bigint AS sent_lsn_bytes,
       (w.write_lsn - '0/0'::pg_lsn)::bigint AS write_lsn_bytes,
       (w.flush_lsn - '0/0'::pg_lsn)::bigint AS flush_lsn_bytes,
       (w.replay_lsn - '0/0'::pg_lsn)::bigint AS replay_lsn_bytes,
       date_part('epoch', w.write_lag) * 1000 AS write_lag_ms,
       date_part('epoch', w.flush_lag) * 1000 AS flush_lag_ms,
       date_part('epoch', w.replay_lag) * 1000 AS replay_lag_ms,
       w.sync_state,
       (date_part('epoch', w.reply_time) * 1000)::bigint AS reply_time_ms
  FROM pg_stat_get_wal_receiver() v
 CROSS JOIN pg_stat_get_recovery() y  -- from 19
  LEFT JOIN pg_stat_get_wal_senders() w ON true
  LEFT JOIN LATERAL pg_stat_get_activity(w.pid) a ON w.pid IS NOT NULL

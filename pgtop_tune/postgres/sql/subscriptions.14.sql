-- One row with nulls when there is no subscription. 15 counts errors, 16 has parallel apply workers, 17 tells the
-- type of a worker, 19 synchronises sequences.
-- A subscription is of one database; what it synchronises has a name here when that is ours.
SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms,
       u.oid || ':' || coalesce(w.pid::text, '') AS id,
       u.subname::text AS name,
       CASE WHEN NOT u.subenabled THEN 'disabled' WHEN w.pid IS NULL THEN 'none' WHEN w.relid IS NOT NULL THEN 'table synchronization'  -- until 15
       CASE WHEN NOT u.subenabled THEN 'disabled' WHEN w.pid IS NULL THEN 'none' WHEN w.leader_pid IS NOT NULL THEN 'parallel apply' WHEN w.relid IS NOT NULL THEN 'table synchronization'  -- from 16 until 16
            ELSE 'apply' END AS kind,  -- until 16
       CASE WHEN NOT u.subenabled THEN 'disabled' WHEN w.pid IS NULL THEN 'none' ELSE w.worker_type END AS kind,  -- from 17
       w.pid,
       CASE WHEN w.relid IS NULL THEN ''
            WHEN u.subdbid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            THEN regexp_replace(w.relid::regclass::text, '^public[.]', '') ELSE w.relid::text END AS relation,
       (w.received_lsn - '0/0'::pg_lsn)::bigint AS received_lsn_bytes,
       (w.latest_end_lsn - '0/0'::pg_lsn)::bigint AS latest_end_lsn_bytes,
       (date_part('epoch', w.last_msg_receipt_time) * 1000)::bigint AS message_ms,
       NULL::bigint AS apply_errors,  -- until 14
       NULL::bigint AS sync_errors,  -- until 14
       (SELECT e.apply_error_count FROM pg_stat_get_subscription_stats(u.oid) e) AS apply_errors,  -- from 15
       (SELECT e.sync_error_count FROM pg_stat_get_subscription_stats(u.oid) e) AS sync_errors,  -- from 15 until 18
       (SELECT e.sync_table_error_count FROM pg_stat_get_subscription_stats(u.oid) e) AS sync_errors,  -- from 19
       NULL::bigint AS sequence_errors  -- until 18
       (SELECT e.sync_seq_error_count FROM pg_stat_get_subscription_stats(u.oid) e) AS sequence_errors  -- from 19
  FROM (SELECT 1) one
  LEFT JOIN pg_subscription u ON true
  LEFT JOIN pg_stat_get_subscription(NULL) w ON w.subid = u.oid

-- What this role may do and what the server counts.
-- A stranger owns the schema of an extension, and this role has powers that his code should not have: he can rename the
-- schema under us, and put functions of his own into another one of that name.
WITH stranger AS (
    SELECT e.extname, pg_get_userbyid(o.owner)::text AS owner
      FROM pg_extension e
      JOIN pg_namespace n ON n.oid = e.extnamespace
      JOIN pg_database d ON d.datname = current_database()
     CROSS JOIN LATERAL (SELECT CASE WHEN n.nspowner = 'pg_database_owner'::regrole THEN d.datdba
                                     ELSE n.nspowner END AS owner) o
     WHERE NOT pg_has_role(o.owner, session_user, 'MEMBER')
       AND EXISTS (SELECT FROM pg_roles r
                    WHERE pg_has_role(session_user, r.oid, 'MEMBER')
                      AND (r.rolsuper OR r.rolcreaterole OR r.rolreplication OR r.rolbypassrls
                           OR r.rolname::text = ANY ($1::text[])))
)
SELECT pg_backend_pid() AS backend_pid,
       (SELECT (date_part('epoch', s.backend_start) * 1000)::bigint
          FROM pg_stat_get_activity(pg_backend_pid()) s) AS backend_start_ms,
       current_setting('server_encoding') AS server_encoding,
       pg_has_role(current_user, 'pg_read_all_settings', 'usage') AS read_all_settings,
       pg_has_role(current_user, 'pg_read_all_stats', 'usage') AS read_all_stats,
       pg_has_role(current_user, 'pg_read_server_files', 'usage') AS read_server_files,
       has_function_privilege('pg_show_all_file_settings()', 'execute') AS read_file_settings,
       has_function_privilege('pg_control_system()', 'execute') AS read_control,
       current_setting('track_activities')::bool AS track_activities,
       current_setting('track_counts')::bool AS track_counts,
       current_setting('track_io_timing')::bool AS track_io_timing,
       current_setting('track_wal_io_timing')::bool AS track_wal_io_timing,
       current_setting('compute_query_id') AS compute_query_id,
       current_setting('pg_stat_statements.track', true) AS statements_track,
       (SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'pg_stat_statements') AS statements_schema,
       (SELECT extversion FROM pg_extension WHERE extname = 'pg_stat_statements') AS statements_version,
       (SELECT has_schema_privilege(e.extnamespace, 'usage') FROM pg_extension e
         WHERE e.extname = 'pg_stat_statements') AS statements_permitted,
       (SELECT s.owner FROM stranger s WHERE s.extname = 'pg_stat_statements') AS statements_stranger,
       (SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'pg_wait_sampling' AND has_schema_privilege(n.oid, 'usage')
           AND NOT EXISTS (SELECT FROM stranger s WHERE s.extname = e.extname)) AS wait_sampling_schema,
       CASE WHEN coalesce(current_setting('pg_wait_sampling.profile_pid', true)::bool, true)
            THEN substring(current_setting('pg_wait_sampling.profile_period', true) FROM '^[0-9]+')::int
        END AS wait_sampling_period_ms

-- {identifier} is composed in: rights on a function are looked at before the statement begins, also in a CASE.
-- Who the server is. pg_settings hides what the role may not see, current_setting() would raise an error.
SELECT current_setting('server_version_num')::int AS version_num,
       current_setting('server_version') AS version,
       (date_part('epoch', pg_postmaster_start_time()) * 1000)::bigint AS started_ms,
       pg_is_in_recovery() AS in_recovery,
       current_database()::text AS database,
       current_user::text AS "user",
       current_setting('cluster_name') AS cluster_name,
       coalesce((SELECT setting FROM pg_settings WHERE name = 'data_directory'), '') AS data_directory,
       {identifier} AS system_identifier,
       current_setting('max_connections')::int AS max_connections,
       current_setting('block_size')::int AS block_bytes,
       pg_size_bytes(current_setting('wal_segment_size'))::int AS wal_segment_bytes,
       current_setting('hot_standby')::bool AS hot_standby,
       coalesce((SELECT rolsuper FROM pg_roles WHERE rolname = current_user), false) AS superuser,
       pg_has_role(current_user, 'pg_monitor', 'usage') AS monitor_role,
       EXISTS (SELECT FROM pg_roles
                WHERE rolname = 'pg_use_reserved_connections' AND pg_has_role(oid, 'usage')) AS may_use_reserved,
       version() AS build,
       ARRAY(SELECT extname || ' ' || extversion FROM pg_extension ORDER BY extname)::text[] AS extensions

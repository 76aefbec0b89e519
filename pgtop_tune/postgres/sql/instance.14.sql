-- Which of the servers of a cluster this is, as far as every role may know, and what more may be asked: the right to
-- call a function is looked at before a CASE is.
SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS started_us,
       pg_is_in_recovery() AS in_recovery,
       coalesce((SELECT setting FROM pg_settings WHERE name = 'data_directory'), '') AS data_directory,
       has_function_privilege('pg_control_system()', 'execute') AS may_identify,
       NOT pg_is_in_recovery() AND has_function_privilege('pg_walfile_name(pg_lsn)', 'execute')
           AND has_function_privilege('pg_current_wal_lsn()', 'execute') AS may_name_wal,
       has_function_privilege('pg_stat_file(text, boolean)', 'execute') AS may_stat,
       has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'execute')
           AND pg_has_role('pg_read_server_files', 'usage') AS may_read

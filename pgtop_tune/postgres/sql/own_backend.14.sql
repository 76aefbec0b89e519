-- What a process of this machine can be recognised by: ours on the server, and where the server keeps its data.
SELECT pid, (date_part('epoch', backend_start) * 1000)::bigint AS backend_start_ms,
       coalesce((SELECT setting FROM pg_settings WHERE name = 'data_directory'), '') AS data_directory
  FROM pg_stat_activity
 WHERE pid = pg_backend_pid()

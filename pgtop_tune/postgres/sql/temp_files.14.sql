-- The maker's pid is in the name of a file. A directory that no file was made in yet does not exist: no rows.
SELECT coalesce(substring(f.name FROM '^pgsql_tmp([0-9]+)\.')::int, 0) AS pid,
       count(*) AS files,
       coalesce(sum(f.size), 0)::bigint AS bytes
  FROM pg_tablespace t, LATERAL pg_ls_tmpdir(t.oid) f
 WHERE t.spcname <> 'pg_global'
 GROUP BY 1

-- What was written to the log since position $2 of file $1, as bytes; the last $3 bytes when that is not where we were.
-- Languages: of the server, and of roles and databases that have another. The catalogue: pg_config and any file.
SELECT f.name AS file,
       s.size,
       p.start,
       pg_read_binary_file(f.name, p.start, $3::bigint, true) AS content,
       current_setting('logging_collector')::bool AS collector,
       current_setting('log_destination') AS destination,
       current_setting('log_line_prefix') AS line_prefix,
       ARRAY(SELECT current_setting('lc_messages')
             UNION
             SELECT substr(c.line, length('lc_messages=') + 1)
               FROM pg_db_role_setting d, unnest(d.setconfig) c(line)
              WHERE c.line ^@ 'lc_messages=') AS languages,
       ARRAY(SELECT DISTINCT pg_encoding_to_char(encoding)::text FROM pg_database) AS encodings,
       pg_has_role('pg_read_server_files', 'USAGE')
       AND has_function_privilege('pg_catalog.pg_config()', 'EXECUTE') AS may_read_catalogue
  FROM (SELECT pg_current_logfile() AS name) f,
       LATERAL pg_stat_file(f.name, true) s,
       LATERAL (SELECT CASE WHEN f.name = $1::text AND s.size BETWEEN $2::bigint AND $2::bigint + $3::bigint
                            THEN $2::bigint ELSE greatest(s.size - $3::bigint, 0) END AS start) p

-- Files that the next start of the server opens, and libraries that it or a session loads: whether they are there, as
-- the server's account sees it. Nothing is loaded. Source: dfmgr.c (expand_dynamic_library_name), miscinit.c
-- (load_libraries).
WITH lines AS MATERIALIZED (
  SELECT lower(name) AS name, setting, seqno FROM pg_file_settings WHERE name IS NOT NULL
), served AS (
  SELECT s.name,
         CASE WHEN s.source IN ('command line', 'environment variable') THEN s.setting
              ELSE coalesce((SELECT l.setting FROM lines l WHERE l.name = lower(s.name) ORDER BY l.seqno DESC LIMIT 1), s.boot_val, '') END AS value
    FROM pg_settings s
   WHERE s.name IN ('shared_preload_libraries', 'session_preload_libraries', 'local_preload_libraries', 'archive_library',
                    'dynamic_library_path', 'data_directory', 'hba_file', 'log_directory', 'unix_socket_directories', 'ssl_cert_file',
                    'ssl_key_file', 'ssl_ca_file', 'ssl_crl_file', 'ssl_crl_dir', 'ssl_dh_params_file')
), named AS (
  SELECT NULL::text AS database, NULL::text AS role, name, value FROM served
  UNION ALL
  SELECT d.datname::text, r.rolname::text, split_part(c, '=', 1), substr(c, strpos(c, '=') + 1)
    FROM pg_db_role_setting s
    LEFT JOIN pg_database d ON d.oid = s.setdatabase
    LEFT JOIN pg_roles r ON r.oid = s.setrole
   CROSS JOIN unnest(s.setconfig) c
   WHERE split_part(c, '=', 1) IN ('session_preload_libraries', 'local_preload_libraries')
), parts AS (
  SELECT n.database, n.role, n.name, n.value, btrim(p, E' \t\n"') AS part, n.name LIKE '%librar%' AS is_library
    FROM named n
   CROSS JOIN regexp_split_to_table(n.value, CASE WHEN n.name LIKE '%libraries' OR n.name = 'unix_socket_directories' THEN ',' ELSE E'\n' END) p
   WHERE n.name <> 'dynamic_library_path' AND btrim(p, E' \t\n"') <> ''
   UNION ALL
  SELECT NULL, NULL, name, value, regexp_replace(value, '/+[^/]*/*$', ''), false
    FROM served
   WHERE name = 'log_directory' AND value ~ '[^/]/+[^/]'
   UNION ALL
  SELECT NULL, NULL, f, f, f, false
    FROM unnest(ARRAY['recovery.conf', 'recovery.signal', 'standby.signal', 'backup_label']) f
), directories AS (
  SELECT replace(d, '$libdir', c.setting) || '/' AS path
    FROM served v
   CROSS JOIN regexp_split_to_table(v.value, ':') d
   CROSS JOIN pg_config() c
   WHERE v.name = 'dynamic_library_path' AND c.name = 'PKGLIBDIR' AND d <> ''
), candidates AS (
  SELECT p.database, p.role, p.name, p.value, p.part, replace(p.part, '$libdir', c.setting) || e AS path
    FROM parts p
   CROSS JOIN pg_config() c
   CROSS JOIN unnest(ARRAY['', '.so', '.dylib']) e
   WHERE p.is_library AND c.name = 'PKGLIBDIR'
  UNION ALL
  SELECT p.database, p.role, p.name, p.value, p.part, d.path || CASE p.name WHEN 'local_preload_libraries' THEN 'plugins/' ELSE '' END || p.part || e
    FROM parts p
   CROSS JOIN directories d
   CROSS JOIN unnest(ARRAY['', '.so', '.dylib']) e
   WHERE p.is_library AND strpos(p.part, '/') = 0
)
SELECT database, role, name, value, part, true AS is_library, bool_or(f.size IS NOT NULL AND NOT f.isdir) AS is_there, false AS is_directory,
       min(path) FILTER (WHERE NOT f.isdir) AS path
  FROM candidates
  LEFT JOIN LATERAL pg_stat_file(path, true) f ON true
 GROUP BY 1, 2, 3, 4, 5
UNION ALL
SELECT database, role, name, value, part, false, f.size IS NOT NULL, coalesce(f.isdir, false), NULL
  FROM parts
  LEFT JOIN LATERAL pg_stat_file(part, true) f ON true
 WHERE NOT is_library AND left(part, 1) <> '@'
 ORDER BY 3, 5
 LIMIT 200

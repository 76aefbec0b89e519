-- Functions, event triggers, extensions and collations of this database, some of each kind with how many there are. Only
-- names and marks of the catalogue are read: nothing of others is run.
(SELECT CASE WHEN r.rolsuper THEN 'superuser''s definer' ELSE 'security definer' END AS kind,
        count(*) OVER (PARTITION BY r.rolsuper) AS n_all,
        ARRAY[n.nspname::text, p.proname::text] AS name, p.oid::regprocedure::text AS part, '' AS detail
   FROM pg_proc p
   JOIN pg_namespace n ON n.oid = p.pronamespace
   JOIN pg_roles r ON r.oid = p.proowner
  WHERE p.oid >= 16384 AND p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND p.prosqlbody IS NULL
    AND NOT EXISTS (SELECT FROM unnest(p.proconfig) o WHERE o ^@ 'search_path=')
    AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
                 WHERE x.grantee <> p.proowner AND x.privilege_type = 'EXECUTE')
    AND NOT EXISTS (SELECT FROM pg_depend d
                     WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
  ORDER BY row_number() OVER (PARTITION BY r.rolsuper ORDER BY p.oid), p.oid LIMIT 1000)
UNION ALL
(SELECT s.kind, count(*) OVER (PARTITION BY s.kind), ARRAY[s.schema, s.name], s.routine, s.path
   FROM (SELECT n.nspname::text AS schema, p.proname::text AS name, p.oid::regprocedure::text AS routine, p.oid, o.path,
                CASE WHEN o.path ~ '^"?pg_temp"?($|,)' THEN 'definer of callers' ELSE 'definer without pg_temp' END AS kind
           FROM pg_proc p
           JOIN pg_namespace n ON n.oid = p.pronamespace
           JOIN pg_roles r ON r.oid = p.proowner
          CROSS JOIN LATERAL (SELECT substr(u, 13) AS path FROM unnest(p.proconfig) u WHERE u ^@ 'search_path=') o
          WHERE p.oid >= 16384 AND p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema')
            AND p.prosqlbody IS NULL AND r.rolsuper
            AND (o.path ~ '^"?pg_temp"?($|,)' OR (o.path !~ 'pg_temp' AND o.path NOT IN ('', '""', 'pg_catalog')))
            AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
                         WHERE x.grantee <> p.proowner AND x.privilege_type = 'EXECUTE')
            AND NOT EXISTS (SELECT FROM pg_depend d
                             WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')) s
  ORDER BY row_number() OVER (PARTITION BY s.kind ORDER BY s.oid), s.oid LIMIT 1000)
UNION ALL
(SELECT 'event trigger off', count(*) OVER (), ARRAY[e.evtname::text], e.evtevent::text, ''
   FROM pg_event_trigger e
   JOIN pg_proc p ON p.oid = e.evtfoid
   JOIN pg_roles r ON r.oid = p.proowner
  WHERE e.evtenabled = 'D' AND r.rolsuper
  ORDER BY e.oid LIMIT 1000)
UNION ALL
(SELECT 'event trigger', count(*) OVER (), ARRAY[e.evtname::text], p.oid::regprocedure::text,
        r.rolname::text || CASE e.evtenabled WHEN 'A' THEN ' ALWAYS' WHEN 'R' THEN ' REPLICA' ELSE '' END
   FROM pg_event_trigger e
   JOIN pg_proc p ON p.oid = e.evtfoid
   JOIN pg_roles r ON r.oid = p.proowner
  WHERE e.evtenabled <> 'D' AND NOT r.rolsuper
  ORDER BY e.oid LIMIT 1000)
UNION ALL
(SELECT 'extension', count(*) OVER (), ARRAY[e.extname::text], e.extversion, coalesce(a.default_version, '')
   FROM pg_extension e
   LEFT JOIN pg_available_extensions() a ON a.name = e.extname
  ORDER BY a.default_version IS DISTINCT FROM e.extversion DESC, e.oid LIMIT 50)
UNION ALL
(SELECT 'password hashes', count(*) OVER (), ARRAY['pg_catalog', c.relname::text], '', coalesce(r.rolname::text, '')
   FROM pg_class c
  CROSS JOIN LATERAL aclexplode(c.relacl) x
   LEFT JOIN pg_roles r ON r.oid = x.grantee
  WHERE c.oid IN ('pg_authid'::regclass, 'pg_shadow'::regclass) AND x.privilege_type = 'SELECT'
    AND x.grantee <> c.relowner AND NOT coalesce(r.rolsuper, false)
  ORDER BY c.oid, x.grantee LIMIT 100)
UNION ALL
(SELECT 'file functions', count(*) OVER (), ARRAY['pg_catalog', p.proname::text], p.oid::regprocedure::text,
        coalesce(r.rolname::text, '')
   FROM pg_proc p
  CROSS JOIN LATERAL aclexplode(p.proacl) x
   LEFT JOIN pg_roles r ON r.oid = x.grantee
  WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.oid < 16384
    AND p.proname IN ('pg_read_file', 'pg_read_binary_file', 'pg_ls_dir', 'pg_stat_file', 'lo_import', 'lo_export')
    AND x.privilege_type = 'EXECUTE' AND (x.grantee = 0 OR x.grantee >= 16384) AND NOT coalesce(r.rolsuper, false)
  ORDER BY p.oid, x.grantee LIMIT 100)
UNION ALL
(SELECT 'no encoding', 1, ARRAY[d.datname::text], '', ''
   FROM pg_database d
  WHERE d.datname = current_database() AND pg_encoding_to_char(d.encoding) = 'SQL_ASCII'
    AND EXISTS (SELECT FROM pg_class c WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p')))
UNION ALL
(SELECT 'collation', count(*) OVER (), ARRAY[n.nspname::text, c.collname::text], c.collversion, v.version
   FROM pg_collation c
   JOIN pg_namespace n ON n.oid = c.collnamespace
  CROSS JOIN LATERAL (SELECT pg_collation_actual_version(c.oid) AS version) v
  WHERE c.collversion IS NOT NULL AND v.version <> c.collversion
    AND EXISTS (SELECT FROM pg_depend d
                 WHERE d.refclassid = 'pg_collation'::regclass AND d.refobjid = c.oid)
  ORDER BY c.oid LIMIT 10)
UNION ALL -- from 15
(SELECT 'database collation', 1, ARRAY[d.datname::text], d.datcollversion, v.version -- from 15
   FROM pg_database d -- from 15
  CROSS JOIN LATERAL (SELECT pg_database_collation_actual_version(d.oid) AS version) v -- from 15
  WHERE d.datname = current_database() AND v.version <> d.datcollversion) -- from 15

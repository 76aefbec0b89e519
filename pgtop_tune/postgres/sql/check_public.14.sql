-- Rights that every role has in this database because PUBLIC has them, a thousand of each kind with how many there are.
-- Not those on objects of extensions, whose makers chose them, nor on the tables of pgbench. Of user mappings only the
-- name of their server is read: pg_user_mappings shows the options only to those who may see them.
WITH g AS MATERIALIZED (
  SELECT n.nspname::text AS schema, c.relname::text AS name, c.oid, c.relpages,
         string_agg(DISTINCT x.privilege_type, ', ') AS rights,
         bool_or(x.privilege_type NOT IN ('SELECT', 'REFERENCES')) AS writes
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
   CROSS JOIN LATERAL aclexplode(c.relacl) x
   WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND x.grantee = 0
     AND n.nspname NOT IN ('pg_catalog', 'information_schema')
     AND NOT (c.relname::text ^@ 'pgbench_' AND c.relname ~ '^pgbench_(accounts|branches|history|tellers)(_[0-9]+)?$')
     AND NOT EXISTS (SELECT FROM pg_depend d
                      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
   GROUP BY n.nspname, c.relname, c.oid, c.relpages)
(SELECT 'public writes' AS kind, count(*) OVER () AS n_all, ARRAY[g.schema, g.name] AS name, '' AS part,
        g.rights AS detail
   FROM g
  WHERE g.writes
  ORDER BY g.relpages DESC, g.oid LIMIT 1000)
UNION ALL
(SELECT 'public reads', count(*) OVER (), ARRAY[g.schema, g.name], '', g.rights
   FROM g
  WHERE NOT g.writes
  ORDER BY g.relpages DESC, g.oid LIMIT 1000)
UNION ALL
(SELECT 'public by default', count(*) OVER (), ARRAY[r.rolname::text], coalesce(n.nspname::text, ''),
        string_agg(x.privilege_type, ', ') || ' ON '
        || CASE d.defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'n' THEN 'SCHEMAS' ELSE 'LARGE OBJECTS' END
   FROM pg_default_acl d
   JOIN pg_roles r ON r.oid = d.defaclrole
   LEFT JOIN pg_namespace n ON n.oid = d.defaclnamespace
  CROSS JOIN LATERAL aclexplode(d.defaclacl) x
  WHERE d.defaclobjtype IN ('r', 'n', 'L') AND x.grantee = 0
  GROUP BY d.oid, r.rolname, n.nspname, d.defaclobjtype
  ORDER BY d.oid LIMIT 1000)
UNION ALL
(SELECT 'public creates schemas', 1, ARRAY[d.datname::text], '', ''
   FROM pg_database d
  WHERE d.datname = current_database()
    AND EXISTS (SELECT FROM aclexplode(d.datacl) x WHERE x.grantee = 0 AND x.privilege_type = 'CREATE'))
UNION ALL
(SELECT CASE WHEN h.hidden THEN 'hidden mapping' ELSE 'public mapping' END, count(*) OVER (PARTITION BY h.hidden),
        ARRAY[m.srvname::text], '', ''
   FROM pg_user_mappings m
   JOIN pg_foreign_server s ON s.oid = m.srvid
  CROSS JOIN LATERAL (SELECT NOT pg_has_role(s.srvowner, 'USAGE') AS hidden) h
  WHERE m.umuser = 0 AND (h.hidden OR EXISTS (SELECT FROM unnest(m.umoptions) o WHERE o ^@ 'password='))
  ORDER BY m.umid LIMIT 1000)

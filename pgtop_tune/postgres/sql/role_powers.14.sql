-- A role and those it may become, as far as they have attributes that matter or one of the names given.
-- Nothing is found along search_path: it may be that of a foreign role.
SELECT r.rolname::pg_catalog.text AS name,
       r.rolsuper AS "SUPERUSER",
       r.rolcreaterole AS "CREATEROLE",
       r.rolreplication AS "REPLICATION",
       r.rolbypassrls AS "BYPASSRLS"
  FROM pg_catalog.pg_roles r
 WHERE pg_catalog.pg_has_role($1::pg_catalog.name, r.oid, 'MEMBER')
   AND (r.rolsuper OR r.rolcreaterole OR r.rolreplication OR r.rolbypassrls
        OR r.rolname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text[]))
 ORDER BY r.rolname::pg_catalog.text OPERATOR(pg_catalog.=) $1::pg_catalog.text DESC, r.rolsuper DESC, r.oid

-- Names of databases and roles, when an oid turns up that is not known yet.
SELECT 'database' AS kind, oid, datname::text AS name FROM pg_database
UNION ALL
SELECT 'role' AS kind, oid, rolname::text AS name FROM pg_roles

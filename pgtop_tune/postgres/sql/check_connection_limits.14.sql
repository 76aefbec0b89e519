-- Limits of connections that databases and roles have of their own. Superusers have none. A database whose DROP was
-- interrupted has -2.
(SELECT 'database' AS kind, datname::text AS name, datconnlimit AS most
   FROM pg_database
  WHERE datconnlimit >= 0 AND datallowconn
  ORDER BY datconnlimit, oid LIMIT 1000)
UNION ALL
(SELECT 'invalid', datname::text, datconnlimit
   FROM pg_database
  WHERE datconnlimit = -2
  ORDER BY oid LIMIT 1000)
UNION ALL
(SELECT 'role', rolname::text, rolconnlimit
   FROM pg_roles
  WHERE rolconnlimit >= 0 AND rolcanlogin AND NOT rolsuper
  ORDER BY rolconnlimit, oid LIMIT 1000)

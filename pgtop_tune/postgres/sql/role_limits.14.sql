-- Roles with a CONNECTION LIMIT.
SELECT oid, rolname::text AS name, rolconnlimit AS connection_limit
  FROM pg_roles
 WHERE rolconnlimit >= 0
 ORDER BY oid
 LIMIT 500

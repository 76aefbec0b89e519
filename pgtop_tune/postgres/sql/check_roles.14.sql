-- Roles that may log in and are superusers.
SELECT rolname::text AS name
  FROM pg_roles
 WHERE rolsuper AND rolcanlogin
 ORDER BY oid

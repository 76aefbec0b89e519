-- Roles that may log in and are superusers.
SELECT rolname::text AS name,
       (date_part('epoch', rolvaliduntil) * 1000)::bigint AS valid_until_ms
  FROM pg_roles
 WHERE rolsuper AND rolcanlogin
 ORDER BY oid

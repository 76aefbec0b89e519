-- Roles that may log in and whose password ends, those still valid first. Whether a role has a password at all is in
-- pg_authid, which is closed to all but superusers.
SELECT rolname::text AS name,
       rolvaliduntil::text AS valid_until,
       CASE WHEN isfinite(rolvaliduntil)
            THEN extract(epoch FROM rolvaliduntil - now())::float8 END AS remaining_s
  FROM pg_roles
 WHERE rolcanlogin AND rolvaliduntil < 'infinity'
 ORDER BY rolvaliduntil < now(), rolvaliduntil, oid
 LIMIT 200

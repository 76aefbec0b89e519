-- Roles that may log in and have no password, besides the one that initdb made. pg_authid is closed to all but superusers.
SELECT rolname::text AS name
  FROM pg_authid
 WHERE rolcanlogin AND rolpassword IS NULL AND oid >= 16384
 ORDER BY oid
 LIMIT 200

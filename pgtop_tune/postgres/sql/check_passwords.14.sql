-- Only how passwords are kept leaves the server, never what is kept. pg_authid is closed to all but superusers.
SELECT rolname::text AS name,
       rolpassword ^@ 'md5' AS md5
  FROM pg_authid
 WHERE rolcanlogin AND rolpassword ^@ 'md5'
 ORDER BY oid
 LIMIT 200

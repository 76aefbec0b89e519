-- Names of all tablespaces.
SELECT spcname::text AS name
  FROM pg_tablespace
 ORDER BY oid
 LIMIT 10000

-- All databases, oldest first; a server with more than 500 keeps those nearest to wraparound.
SELECT d.oid,
       d.datname::text AS name,
       d.datfrozenxid AS frozen_xid,
       d.datminmxid AS min_multixact,
       d.datconnlimit AS connection_limit,
       d.datallowconn AS allows_connections,
       ((age('3'::xid)::bigint + 3) & 4294967295) AS next_xid,
       ((mxid_age('1'::xid)::bigint + 1) & 4294967295) AS next_multixact
  FROM pg_database d
 ORDER BY age(d.datfrozenxid) DESC, d.oid
 LIMIT 500

-- Transactions prepared for two-phase commit.
SELECT p.gid,
       p.transaction AS xid,
       p.owner::text AS owner,
       p.database::text AS database,
       (date_part('epoch', p.prepared) * 1000)::bigint AS prepared_ms
  FROM pg_prepared_xacts p
 ORDER BY p.prepared, p.gid
 LIMIT 500

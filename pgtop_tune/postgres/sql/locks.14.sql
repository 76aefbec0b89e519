-- Only when somebody waits, and only of the waiters and those that hold them up ($1). A tag names a lock: which columns
-- of pg_locks are filled follows from locktype, so that joined words cannot be mistaken for one another.
-- A prepared transaction has no process, but a lock on its own xid.
-- A subquery, and no array made of text: that is made anew for every lock of the server.
WITH l AS MATERIALIZED (
    SELECT coalesce(k.pid, 0) AS pid, k.granted, k.locktype, k.mode, k.waitstart, k.database, k.relation, k.page,
           k.tuple, k.virtualxid, k.transactionid, k.classid, k.objid, k.objsubid, k.virtualtransaction,
           concat_ws('/', k.locktype, k.database, k.relation, k.page, k.tuple, k.virtualxid, k.transactionid, k.classid,
                     k.objid, k.objsubid) AS tag
      FROM pg_lock_status() k
     WHERE k.pid IS NULL OR k.pid IN (SELECT unnest($1::text[])::int)
), w AS MATERIALIZED (
    SELECT DISTINCT ON (l.pid) * FROM l WHERE NOT l.granted ORDER BY l.pid
), held AS (
    SELECT h.tag, h.pid, string_agg(h.mode, ', ' ORDER BY h.mode) AS modes,
           max(CASE WHEN h.pid = 0 THEN h.virtualtransaction END) AS prepared
      FROM l h
     WHERE h.granted AND h.tag IN (SELECT w.tag FROM w)
     GROUP BY h.tag, h.pid, CASE WHEN h.pid = 0 THEN h.virtualtransaction END
), holders AS (
    SELECT held.tag,
           (array_agg(held.pid ORDER BY held.pid))[1:16] AS pids,
           (array_agg(held.modes ORDER BY held.pid))[1:16] AS modes,
           array_remove(array_agg(held.prepared ORDER BY held.pid), NULL) AS prepared
      FROM held
     GROUP BY held.tag
)
SELECT w.pid,
       w.locktype,
       w.mode,
       CASE WHEN r.database IN (0, here.oid) THEN regexp_replace(r.relation::regclass::text, '^public[.]', '') END AS relation,
       CASE WHEN w.relation IS NOT NULL AND w.database NOT IN (0, here.oid)
            THEN concat(w.locktype, ' ', w.relation, ' of another database')
            WHEN w.locktype = 'tuple' THEN concat('row (', w.page, ',', w.tuple, ')')
            WHEN w.locktype = 'page' THEN concat('page ', w.page)
            WHEN w.locktype = 'transactionid' AND r.tuple IS NOT NULL
            THEN concat('row (', r.page, ',', r.tuple, '), xid ', w.transactionid)
            WHEN w.locktype = 'transactionid' THEN concat('xid ', w.transactionid)
            WHEN w.locktype = 'virtualxid' THEN concat('virtual xid ', w.virtualxid)
            WHEN w.locktype = 'advisory' AND w.objsubid = 1
            THEN concat('advisory ', (w.classid::bigint << 32) | w.objid::bigint)
            WHEN w.locktype = 'advisory'
            THEN concat('advisory ', w.classid::bigint::bit(32)::int, ', ', w.objid::bigint::bit(32)::int)
            WHEN w.locktype IN ('relation', 'extend') THEN w.locktype
            ELSE concat_ws(' ', w.locktype, w.classid::regclass, w.objid) END AS target,
       (date_part('epoch', w.waitstart) * 1000)::bigint AS wait_start_ms,
       coalesce(holders.pids, '{}')::text[] AS holders,
       coalesce(holders.modes, '{}') AS held_modes,
       CASE WHEN holders.prepared <> '{}'
            THEN ARRAY(SELECT p.gid FROM pg_prepared_xact() p JOIN l x ON x.transactionid = p.transaction
                        WHERE x.pid = 0 AND x.locktype = 'transactionid' AND x.granted
                          AND x.virtualtransaction = ANY (holders.prepared) ORDER BY p.gid)
            ELSE '{}' END AS prepared
  FROM w
 CROSS JOIN (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) here
  LEFT JOIN holders ON holders.tag = w.tag
  LEFT JOIN LATERAL (
    SELECT w.database, w.relation, w.page, w.tuple WHERE w.relation IS NOT NULL
    UNION ALL
    (SELECT t.database, t.relation, t.page, t.tuple
       FROM l t
      WHERE w.locktype = 'transactionid' AND t.pid = w.pid AND t.locktype = 'tuple' AND t.granted
      LIMIT 1)
  ) r ON true
 ORDER BY w.waitstart, w.pid

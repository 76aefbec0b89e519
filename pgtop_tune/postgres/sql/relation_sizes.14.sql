-- One table, on demand: looks at its files. A table that was dropped meanwhile is no row.
SELECT n.nspname || '.' || c.relname AS name,
       pg_relation_size(c.oid, 'main') AS heap_bytes,
       pg_relation_size(c.oid, 'fsm') + pg_relation_size(c.oid, 'vm') + pg_relation_size(c.oid, 'init') AS other_forks_bytes,
       CASE WHEN c.reltoastrelid <> 0 THEN pg_total_relation_size(c.reltoastrelid) ELSE 0 END AS toast_bytes,
       ARRAY(SELECT x.relname::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
              WHERE i.indrelid = c.oid ORDER BY x.oid) AS index_names,
       ARRAY(SELECT pg_relation_size(i.indexrelid) FROM pg_index i
              WHERE i.indrelid = c.oid ORDER BY i.indexrelid)::text[] AS index_bytes
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = $1::oid

-- All commands that tell how far they are, in one shape. To 16 VACUUM counts dead tuples, six bytes each; from 17 on bytes and indexes;
-- 18 knows how long VACUUM and ANALYZE slept for their cost limit; 19 who began them and how thorough a VACUUM is, and has REPACK, of
-- which CLUSTER and VACUUM FULL are kinds.
-- A relation has a name here only when it is of this database; of another it is its oid.
SELECT r.pid,
       r.command,
       r.datname::text AS datname,
       CASE WHEN coalesce(r.relid, 0) = 0 THEN ''
            WHEN r.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            THEN regexp_replace(r.relid::regclass::text, '^public[.]', '')
                 || CASE WHEN r.index_relid <> 0
                         THEN ' (' || regexp_replace(r.index_relid::regclass::text, '^public[.]', '') || ')' ELSE '' END
            ELSE r.relid::text END AS relation,
       coalesce(r.phase, '') AS phase,
       r.done, r.total, r.unit, r.steps_done, r.steps_total, r.steps_unit, r.tuples,
       r.memory_bytes, r.memory_limit_bytes, r.passes, r.delay_ms, coalesce(r.mode, '') AS mode,
       coalesce(r.started_by, '') AS started_by
  FROM (SELECT pid,
               datid,
               datname,
               relid,
               0::oid AS index_relid,
               'VACUUM' AS command,
               phase,
               CASE phase WHEN 'scanning heap' THEN heap_blks_scanned WHEN 'vacuuming heap' THEN heap_blks_vacuumed END AS done,  -- until 16
               CASE WHEN phase IN ('scanning heap', 'vacuuming heap') THEN heap_blks_total END AS total,  -- until 16
               CASE WHEN phase IN ('scanning heap', 'vacuuming heap') THEN 'blocks' ELSE '' END AS unit,  -- until 16
               CASE phase WHEN 'scanning heap' THEN heap_blks_scanned WHEN 'vacuuming heap' THEN heap_blks_vacuumed  -- from 17
                           WHEN 'vacuuming indexes' THEN indexes_processed WHEN 'cleaning up indexes' THEN indexes_processed END AS done,  -- from 17
               CASE phase WHEN 'scanning heap' THEN heap_blks_total WHEN 'vacuuming heap' THEN heap_blks_total  -- from 17
                           WHEN 'vacuuming indexes' THEN indexes_total WHEN 'cleaning up indexes' THEN indexes_total END AS total,  -- from 17
               CASE WHEN phase IN ('scanning heap', 'vacuuming heap') THEN 'blocks'  -- from 17
                    WHEN phase IN ('vacuuming indexes', 'cleaning up indexes') THEN 'indexes' ELSE '' END AS unit,  -- from 17
               heap_blks_scanned AS steps_done,
               heap_blks_total AS steps_total,
               'heap blocks' AS steps_unit,
               num_dead_tuples AS tuples,  -- until 16
               num_dead_tuples * 6 AS memory_bytes,  -- until 16
               max_dead_tuples * 6 AS memory_limit_bytes,  -- until 16
               num_dead_item_ids AS tuples,  -- from 17
               dead_tuple_bytes AS memory_bytes,  -- from 17
               max_dead_tuple_bytes AS memory_limit_bytes,  -- from 17
               index_vacuum_count AS passes,
               NULL::float8 AS delay_ms,  -- until 17
               delay_time::float8 AS delay_ms,  -- from 18
               ''::text AS mode,  -- until 18
               ''::text AS started_by  -- until 18
               mode AS mode,  -- from 19
               started_by AS started_by  -- from 19
          FROM pg_stat_progress_vacuum
        UNION ALL
        SELECT pid,
               datid,
               datname,
               relid,
               0::oid AS index_relid,
               'ANALYZE' AS command,
               phase,
               CASE WHEN phase = 'computing extended statistics' THEN ext_stats_computed ELSE sample_blks_scanned END AS done,
               CASE WHEN phase = 'computing extended statistics' THEN ext_stats_total ELSE nullif(sample_blks_total, 0) END AS total,
               CASE WHEN phase = 'computing extended statistics' THEN 'statistics' ELSE 'blocks' END AS unit,
               child_tables_done AS steps_done,
               nullif(child_tables_total, 0) AS steps_total,
               'child tables' AS steps_unit,
               NULL::bigint AS tuples,
               NULL::bigint AS memory_bytes,
               NULL::bigint AS memory_limit_bytes,
               NULL::bigint AS passes,
               NULL::float8 AS delay_ms,  -- until 17
               delay_time::float8 AS delay_ms,  -- from 18
               ''::text AS mode,  -- until 18
               ''::text AS started_by  -- until 18
               ''::text AS mode,  -- from 19
               started_by AS started_by  -- from 19
          FROM pg_stat_progress_analyze
        UNION ALL
        SELECT pid,
               datid,
               datname,
               relid,
               index_relid,
               coalesce(command, 'CREATE INDEX') AS command,
               phase,
               CASE WHEN phase LIKE 'waiting%' THEN lockers_done WHEN tuples_total > 0 AND phase NOT LIKE '%scanning%'
                    THEN tuples_done ELSE blocks_done END AS done,
               nullif(CASE WHEN phase LIKE 'waiting%' THEN lockers_total WHEN tuples_total > 0 AND phase NOT LIKE '%scanning%'
                           THEN tuples_total ELSE blocks_total END, 0) AS total,
               CASE WHEN phase LIKE 'waiting%' THEN 'lockers' WHEN tuples_total > 0 AND phase NOT LIKE '%scanning%'
                    THEN 'tuples' ELSE 'blocks' END AS unit,
               partitions_done AS steps_done,
               nullif(partitions_total, 0) AS steps_total,
               'partitions' AS steps_unit,
               tuples_done AS tuples,
               NULL::bigint AS memory_bytes,
               NULL::bigint AS memory_limit_bytes,
               NULL::bigint AS passes,
               NULL::float8 AS delay_ms,
               ''::text AS mode,
               ''::text AS started_by
          FROM pg_stat_progress_create_index
        UNION ALL
        SELECT pid,
               datid,
               datname,
               relid,
               cluster_index_relid AS index_relid,  -- until 18
               repack_index_relid AS index_relid,  -- from 19
               coalesce(command, 'CLUSTER') AS command,
               phase,
               CASE WHEN phase = 'seq scanning heap' THEN heap_blks_scanned END AS done,
               CASE WHEN phase = 'seq scanning heap' THEN nullif(heap_blks_total, 0) END AS total,
               'blocks' AS unit,
               CASE WHEN phase = 'rebuilding index' THEN index_rebuild_count END AS steps_done,
               NULL::bigint AS steps_total,
               'indexes' AS steps_unit,
               CASE WHEN phase LIKE '%scanning%' THEN heap_tuples_scanned ELSE heap_tuples_written END AS tuples,  -- until 18
               CASE WHEN phase LIKE '%scanning%' THEN heap_tuples_scanned  -- from 19
                    ELSE heap_tuples_inserted + heap_tuples_updated + heap_tuples_deleted END AS tuples,  -- from 19
               NULL::bigint AS memory_bytes,
               NULL::bigint AS memory_limit_bytes,
               NULL::bigint AS passes,
               NULL::float8 AS delay_ms,
               ''::text AS mode,
               ''::text AS started_by
          FROM pg_stat_progress_cluster  -- until 18
          FROM pg_stat_progress_repack  -- from 19
        UNION ALL
        SELECT pid,
               datid,
               datname,
               relid,
               0::oid AS index_relid,
               coalesce(command, 'COPY') AS command,
               lower(type) AS phase,
               bytes_processed AS done,
               nullif(bytes_total, 0) AS total,
               'bytes' AS unit,
               NULL::bigint AS steps_done,
               NULL::bigint AS steps_total,
               '' AS steps_unit,
               tuples_processed AS tuples,
               NULL::bigint AS memory_bytes,
               NULL::bigint AS memory_limit_bytes,
               NULL::bigint AS passes,
               NULL::float8 AS delay_ms,
               ''::text AS mode,
               ''::text AS started_by
          FROM pg_stat_progress_copy
        UNION ALL
        SELECT pid,
               NULL::oid AS datid,
               NULL::name AS datname,
               0::oid AS relid,
               0::oid AS index_relid,
               'BASE BACKUP' AS command,
               phase,
               backup_streamed AS done,
               backup_total AS total,
               'bytes' AS unit,
               tablespaces_streamed AS steps_done,
               tablespaces_total AS steps_total,
               'tablespaces' AS steps_unit,
               NULL::bigint AS tuples,
               NULL::bigint AS memory_bytes,
               NULL::bigint AS memory_limit_bytes,
               NULL::bigint AS passes,
               NULL::float8 AS delay_ms,
               ''::text AS mode,  -- until 18
               ''::text AS started_by  -- until 18
               backup_type AS mode,  -- from 19
               ''::text AS started_by  -- from 19
          FROM pg_stat_progress_basebackup) r

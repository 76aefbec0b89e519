-- Segments that wait for the archiver: a .ready file each, made when the segment was finished.
SELECT count(*) AS waiting,
       (date_part('epoch', min(modification)) * 1000)::bigint AS oldest_ms,
       (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms
  FROM pg_ls_archive_statusdir()
 WHERE name LIKE '%.ready'

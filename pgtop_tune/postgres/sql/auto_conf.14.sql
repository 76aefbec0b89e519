-- What postgresql.auto.conf sets, the last line of each name, in the order of the file. Reads the files anew;
-- superusers only unless granted.
SELECT name, setting
  FROM (SELECT name, setting, seqno, max(seqno) OVER (PARTITION BY lower(name)) AS last_seqno
          FROM pg_file_settings
         WHERE sourcefile = current_setting('data_directory') || '/postgresql.auto.conf') f
 WHERE seqno = last_seqno
 ORDER BY seqno

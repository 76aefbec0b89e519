-- What postgresql.auto.conf sets, the last line of each name, in the order of the file. Reads the files anew;
-- superusers only unless granted. A role that may not see data_directory knows that file by its name.
SELECT name, setting
  FROM (SELECT s.name, s.setting, s.seqno, max(s.seqno) OVER (PARTITION BY lower(s.name)) AS last_seqno
          FROM pg_file_settings s
         CROSS JOIN (SELECT coalesce((SELECT setting FROM pg_settings WHERE name = 'data_directory'), '')
                            || '/postgresql.auto.conf' AS path) a
         WHERE right(s.sourcefile, length(a.path)) = a.path) f
 WHERE seqno = last_seqno
 ORDER BY seqno

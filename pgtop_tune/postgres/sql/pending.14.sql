-- What the configuration files have for parameters that wait for a restart; null where no file sets them any more.
-- Reads the files anew; superusers only unless granted.
SELECT s.name,
       (SELECT f.setting
          FROM pg_file_settings f
         WHERE lower(f.name) = lower(s.name)
         ORDER BY f.seqno DESC
         LIMIT 1) AS setting
  FROM unnest($1::text[]) AS s(name)

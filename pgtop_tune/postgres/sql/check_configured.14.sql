-- What the configuration files set: the line of each name that counts, and the one of postgresql.auto.conf. Reads the
-- files anew; superusers only unless granted.
SELECT lower(name) AS name,
       (array_agg(setting ORDER BY seqno DESC) FILTER (WHERE error IS NULL))[1] AS setting,
       (array_agg(sourcefile || ':' || sourceline ORDER BY seqno DESC) FILTER (WHERE error IS NULL))[1] AS place,
       (array_agg(setting ORDER BY seqno DESC)
            FILTER (WHERE sourcefile = current_setting('data_directory') || '/postgresql.auto.conf'))[1] AS stored
  FROM pg_file_settings
 WHERE name IS NOT NULL
 GROUP BY 1

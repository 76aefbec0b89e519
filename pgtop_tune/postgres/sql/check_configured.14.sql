-- What the configuration files set: the line of each name that counts, that of postgresql.auto.conf, and the one that
-- the next start reads, which may be an error for a running server. Reads the
-- files anew; superusers only unless granted. A role that may not see data_directory knows that file by its name. Our
-- markers of pending values are none of the operator's settings.
SELECT lower(f.name) AS name,
       (array_agg(f.setting ORDER BY f.seqno DESC) FILTER (WHERE f.error IS NULL))[1] AS setting,
       (array_agg(f.sourcefile || ':' || f.sourceline ORDER BY f.seqno DESC) FILTER (WHERE f.error IS NULL))[1] AS place,
       (array_agg(f.setting ORDER BY f.seqno DESC)
            FILTER (WHERE right(f.sourcefile, length(a.path)) = a.path))[1] AS stored,
       (array_agg(f.setting ORDER BY f.seqno DESC))[1] AS next
  FROM pg_file_settings f
 CROSS JOIN (SELECT coalesce((SELECT setting FROM pg_settings WHERE name = 'data_directory'), '')
                    || '/postgresql.auto.conf' AS path) a
 WHERE f.name IS NOT NULL AND f.name NOT LIKE 'pgtop\_tune.%'
 GROUP BY 1

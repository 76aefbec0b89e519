-- Where the server keeps what besides its data directory. A relative location is one inside it (in-place tablespaces).
SELECT t.names AS tablespace_names,
       t.directories AS tablespace_directories,
       current_setting('temp_tablespaces') AS temp_tablespaces,
       CASE WHEN current_setting('logging_collector')::bool
            THEN (SELECT setting FROM pg_settings WHERE name = 'log_directory') END AS log_directory,
       (SELECT setting FROM pg_settings WHERE name = 'data_directory') AS data_directory
  FROM (SELECT coalesce(array_agg(spcname::text ORDER BY spcname), '{}') AS names,
               coalesce(array_agg(location ORDER BY spcname), '{}') AS directories
          FROM (SELECT spcname, pg_tablespace_location(oid) AS location FROM pg_tablespace) s
         WHERE location ^@ '/') t

-- Lines of the configuration files that the server could not apply. Values may be secrets and stay where they are.
SELECT sourcefile,
       sourceline,
       name,
       error
  FROM pg_file_settings
 WHERE error IS NOT NULL
 ORDER BY sourcefile, sourceline
 LIMIT 100

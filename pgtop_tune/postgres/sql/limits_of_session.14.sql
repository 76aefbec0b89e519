-- What is set for sessions of our role in our database, of each name what counts.
SELECT DISTINCT ON (name)
       lower(split_part(line, '=', 1)) AS name,
       substr(line, strpos(line, '=') + 1) AS setting,
       CASE WHEN setrole = 0 THEN 'database' WHEN setdatabase = 0 THEN 'user' ELSE 'database user' END AS source
  FROM pg_db_role_setting, unnest(setconfig) AS line
 WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
   AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
   AND lower(split_part(line, '=', 1)) = ANY($1)
 ORDER BY name, setdatabase <> 0 AND setrole <> 0 DESC, setrole <> 0 DESC

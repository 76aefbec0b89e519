-- Lines of pg_ident.conf, from 16 on with the files it includes, as the server reads it now. Which names a pattern
-- catches is tried with names of nobody by the server's own regular expressions, under the collation it uses itself.
WITH lines AS (
  SELECT l.number::int AS line_number, trim(BOTH '"' FROM w[1]) AS map_name, trim(BOTH '"' FROM w[2]) AS sys_name, trim(BOTH '"' FROM w[3]) AS pg_username, NULL::text AS error, NULL::text AS file_name  -- until 14
    FROM regexp_split_to_table(pg_read_file(current_setting('ident_file')), '\r?\n') WITH ORDINALITY AS l (line, number)  -- until 14
    CROSS JOIN LATERAL regexp_match(l.line, '^\s*("[^"]*"|[^\s,"#]+)\s+("[^"]*"|[^\s,"#]+)\s+("[^"]*"|[^\s,"#]+)') AS w  -- until 14
   WHERE w IS NOT NULL  -- until 14
  SELECT line_number, map_name, sys_name, pg_username, error, NULL::text AS file_name FROM pg_ident_file_mappings  -- from 15 until 15
  SELECT line_number, map_name, sys_name, pg_username, error, file_name FROM pg_ident_file_mappings  -- from 16
   ORDER BY 1
   LIMIT 1000
)
SELECT line_number,
       map_name,
       sys_name,
       pg_username AS role_name,
       error,
       file_name,
       CASE WHEN error IS NULL AND left(sys_name, 1) = '/' THEN 'nobody' COLLATE "C" ~ substr(sys_name, 2) AND 'pgtop-7' COLLATE "C" ~ substr(sys_name, 2) ELSE false END AS any_account,
       CASE WHEN error IS NULL AND left(sys_name, 1) = '/' THEN 'nobody@EXAMPLE.ORG' COLLATE "C" ~ substr(sys_name, 2) AND 'pgtop-7@EXAMPLE.COM' COLLATE "C" ~ substr(sys_name, 2) ELSE false END AS any_principal,
       ARRAY(
         SELECT r.rolname::text
           FROM pg_roles r
          WHERE r.rolsuper AND r.rolcanlogin
            AND CASE WHEN error IS NOT NULL THEN false
                     WHEN pg_username = 'all' THEN true  -- from 16
                     WHEN left(pg_username, 1) = '+' THEN EXISTS (SELECT 1 FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid AND g.rolname = substr(pg_username, 2))  -- from 16
                     WHEN left(pg_username, 1) = '/' THEN r.rolname::text COLLATE "C" ~ substr(pg_username, 2)  -- from 16
                     ELSE r.rolname = pg_username END
          ORDER BY 1
          LIMIT 20
       ) AS superusers
  FROM lines
 WHERE map_name IS NOT NULL

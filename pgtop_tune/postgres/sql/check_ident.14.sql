-- Lines of pg_ident.conf, from 16 on with the files it includes, as the server reads it now. Which names a pattern
-- catches is tried by the server's own regular expressions, under the collation it uses itself: with names of nobody,
-- and with the pattern itself where such a name takes the place of each part that stands for many.
WITH RECURSIVE lines AS (
  SELECT l.number::int AS line_number, trim(BOTH '"' FROM w[1]) AS map_name, trim(BOTH '"' FROM w[2]) AS sys_name, trim(BOTH '"' FROM w[3]) AS pg_username, NULL::text AS error, NULL::text AS file_name  -- until 14
    FROM regexp_split_to_table(pg_read_file(current_setting('ident_file')), '\r?\n') WITH ORDINALITY AS l (line, number)  -- until 14
    CROSS JOIN LATERAL regexp_match(l.line, '^\s*("[^"]*"|[^\s,"#]+)\s+("[^"]*"|[^\s,"#]+)\s+("[^"]*"|[^\s,"#]+)') AS w  -- until 14
   WHERE w IS NOT NULL  -- until 14
  SELECT line_number, map_name, sys_name, pg_username, error, NULL::text AS file_name FROM pg_ident_file_mappings  -- from 15 until 15
  SELECT line_number, map_name, sys_name, pg_username, error, file_name FROM pg_ident_file_mappings  -- from 16
   ORDER BY 1
   LIMIT 1000
), made AS (
  SELECT n.name,
         l.sys_name,
         translate(regexp_replace(ltrim(l.sys_name, '/^'), '[(]?([.]|\[[^]]*\]|\\[wSD])([*+]|\{[0-9,]+\})[?]?[)]?', n.name, 'g'), '\$', '') AS sample
    FROM lines l
   CROSS JOIN (VALUES ('qzkwvj'), ('fhxuyg')) n (name)
   WHERE l.error IS NULL AND left(l.sys_name, 1) = '/'
), caught AS (
  SELECT m.sys_name,
         bool_and(m.name COLLATE "C" ~ substr(m.sys_name, 2)) OR bool_and(m.name || '47' COLLATE "C" ~ substr(m.sys_name, 2)) AS any_account,
         bool_and(m.name || CASE m.name WHEN 'qzkwvj' THEN '@EXAMPLE.ORG' ELSE '@EXAMPLE.COM' END COLLATE "C" ~ substr(m.sys_name, 2))
           OR bool_and(left(m.sample, 7) = m.name || '@' AND m.sample COLLATE "C" ~ substr(m.sys_name, 2)) AS any_principal,
         bool_and('CN=' || m.name || ',O=EXAMPLE' COLLATE "C" ~ substr(m.sys_name, 2))
           OR bool_and(strpos(m.sample, 'CN=' || m.name) > 0 AND m.sample COLLATE "C" ~ substr(m.sys_name, 2)) AS any_subject
    FROM made m
   GROUP BY 1
), members AS (
  SELECT r.oid AS member, r.oid AS roleid FROM pg_roles r WHERE r.rolsuper AND r.rolcanlogin
   UNION
  SELECT m.member, a.roleid FROM members m JOIN pg_auth_members a ON a.member = m.roleid
)
SELECT line_number,
       map_name,
       sys_name,
       pg_username AS role_name,
       error,
       file_name,
       coalesce(any_account, false) AS any_account,
       coalesce(any_principal, false) AS any_principal,
       coalesce(any_subject, false) AS any_subject,
       ARRAY(
         SELECT r.rolname::text
           FROM pg_roles r
          WHERE r.rolsuper AND r.rolcanlogin
            AND CASE WHEN error IS NOT NULL THEN false
                     WHEN pg_username = 'all' THEN true  -- from 16
                     WHEN left(pg_username, 1) = '+' THEN EXISTS (SELECT 1 FROM members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid AND g.rolname = substr(pg_username, 2))  -- from 16
                     WHEN left(pg_username, 1) = '/' THEN r.rolname::text COLLATE "C" ~ substr(pg_username, 2)  -- from 16
                     ELSE r.rolname = pg_username END
          ORDER BY 1
          LIMIT 20
       ) AS superusers
  FROM lines
  LEFT JOIN caught USING (sys_name)
 WHERE map_name IS NOT NULL

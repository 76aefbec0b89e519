-- ALTER ROLE … SET and ALTER DATABASE … SET. Not those of roles that cannot log in: they are for the sessions of that
-- very role, and its members do not get them. Our markers of pending values are none of the operator's settings.
SELECT d.datname::text AS database,
       r.rolname::text AS role,
       array_remove(array(SELECT CASE WHEN entry NOT LIKE 'pgtop\_tune.%' THEN entry END
                            FROM unnest(s.setconfig) AS entry), NULL) AS settings
  FROM pg_db_role_setting s
  LEFT JOIN pg_database d ON d.oid = s.setdatabase
  LEFT JOIN pg_roles r ON r.oid = s.setrole
 WHERE r.rolcanlogin IS DISTINCT FROM false
 ORDER BY s.setdatabase, s.setrole
 LIMIT 1000

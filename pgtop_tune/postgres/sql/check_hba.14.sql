-- pg_hba.conf as the server reads it now. Options may hold secrets of LDAP and RADIUS and stay where they are.
SELECT line_number,
       type,
       coalesce(database, '{}') AS databases,
       coalesce(user_name, '{}') AS users,
       address,
       netmask,
       auth_method AS method,
       error,
       NULL::text AS file_name
  FROM pg_hba_file_rules
 ORDER BY line_number
 LIMIT 1000

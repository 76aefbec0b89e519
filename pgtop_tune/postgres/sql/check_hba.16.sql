-- pg_hba.conf and the files it includes, as the server reads them now. Options may hold secrets of LDAP and RADIUS and stay where they are.
SELECT line_number,
       type,
       coalesce(database, '{}') AS databases,
       coalesce(user_name, '{}') AS users,
       address,
       netmask,
       auth_method AS method,
       error,
       file_name
  FROM pg_hba_file_rules
 ORDER BY rule_number NULLS LAST, file_name, line_number
 LIMIT 1000

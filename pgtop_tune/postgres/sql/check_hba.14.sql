-- pg_hba.conf, from 16 on with the files it includes, as the server reads it now. Options may hold secrets of LDAP and RADIUS and stay where they are.
SELECT line_number,
       type,
       coalesce(database, '{}') AS databases,
       coalesce(user_name, '{}') AS users,
       address,
       netmask,
       auth_method AS method,
       (SELECT substr(o, 5) FROM unnest(options) o WHERE o LIKE 'map=%' LIMIT 1) AS map,
       (SELECT substr(o, 12) FROM unnest(options) o WHERE o LIKE 'clientcert=%' LIMIT 1) AS client_certificate,
       CASE auth_method WHEN 'ldap' THEN (SELECT bool_and(o NOT IN ('ldaptls=true', 'ldapscheme=ldaps')) FROM unnest(options) o)
                        ELSE false END AS is_ldap_in_clear,
       error,
       NULL::text AS file_name  -- until 15
       file_name  -- from 16
  FROM pg_hba_file_rules
 ORDER BY line_number  -- until 15
 ORDER BY rule_number NULLS LAST, file_name, line_number  -- from 16
 LIMIT 1000

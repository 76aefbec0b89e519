-- Roles besides superusers with rights that lead around those of tables: of row security, of the server's files and
-- programs, of a superuser whose member they are, of making roles, of replication where nothing streams with it, and of
-- setting parameters that are commands or libraries. What streams is seen on a primary only. Members are those that
-- were granted the role itself; `logins` are the others that come to the role through it.
SELECT p.kind, p.role, p.through, p.with_admin,
       ARRAY(WITH RECURSIVE m AS (SELECT a.member
                                    FROM pg_auth_members a
                                   WHERE a.roleid = p.oid AND p.kind NOT IN ('roles', 'any role', 'replication')
                                     AND (a.inherit_option OR a.set_option) -- from 16
                                   UNION
                                  SELECT a.member FROM pg_auth_members a JOIN m ON a.roleid = m.member
                                   WHERE (a.inherit_option OR a.set_option) -- from 16
                                 )
             SELECT r.rolname::text FROM m JOIN pg_roles r ON r.oid = m.member
              WHERE r.rolcanlogin AND NOT r.rolsuper
              ORDER BY 1 LIMIT 20) AS logins
  FROM (SELECT 'row security' AS kind, r.rolname::text AS role, '' AS through, false AS with_admin, r.oid
          FROM pg_roles r
         WHERE r.rolbypassrls AND NOT r.rolsuper
        UNION ALL
        SELECT 'any role', -- until 15
        SELECT 'roles', -- from 16
               r.rolname::text, '', false, r.oid
          FROM pg_roles r
         WHERE r.rolcreaterole AND r.rolcanlogin AND NOT r.rolsuper
        UNION ALL
        SELECT 'replication', r.rolname::text, '', false, r.oid
          FROM pg_roles r
         WHERE r.rolreplication AND r.rolcanlogin AND NOT r.rolsuper
           AND NOT pg_is_in_recovery() AND NOT EXISTS (SELECT FROM pg_stat_replication s WHERE s.usesysid = r.oid)
        UNION ALL
        SELECT CASE g.rolname WHEN 'pg_read_server_files' THEN 'files read' ELSE 'server account' END,
               r.rolname::text, g.rolname::text, bool_or(m.admin_option), r.oid
          FROM pg_auth_members m
          JOIN pg_roles g ON g.oid = m.roleid
          JOIN pg_roles r ON r.oid = m.member
         WHERE (g.rolsuper OR g.rolname IN ('pg_execute_server_program', 'pg_read_server_files',
                                            'pg_write_server_files'))
           AND NOT r.rolsuper
         GROUP BY r.oid, r.rolname, g.rolname
        UNION ALL -- from 15
        SELECT 'parameter', coalesce(r.rolname::text, ''), a.parname, bool_or(x.is_grantable), x.grantee -- from 15
          FROM pg_parameter_acl a -- from 15
         CROSS JOIN LATERAL aclexplode(a.paracl) x -- from 15
          LEFT JOIN pg_roles r ON r.oid = x.grantee -- from 15
         WHERE x.privilege_type = 'ALTER SYSTEM' AND NOT coalesce(r.rolsuper, false) -- from 15
           AND (a.parname LIKE '%\_command' OR a.parname LIKE '%\_libraries' OR a.parname LIKE '%\_library' -- from 15
                OR a.parname LIKE '%\_library\_path' OR a.parname = 'jit_provider') -- from 15
         GROUP BY x.grantee, r.rolname, a.parname -- from 15
        ) p
 ORDER BY p.oid, p.through
 LIMIT 200

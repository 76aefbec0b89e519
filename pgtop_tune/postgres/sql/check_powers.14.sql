-- Roles besides superusers with rights that lead around those of tables: of row security, of the server's files and
-- programs, of a superuser whose member they are, of making roles, and of replication where nothing streams with it.
-- Members are those that were granted the role itself.
SELECT p.kind, p.role, p.through, p.with_admin
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
           AND NOT EXISTS (SELECT FROM pg_stat_replication s WHERE s.usesysid = r.oid)
        UNION ALL
        SELECT CASE g.rolname WHEN 'pg_read_server_files' THEN 'files read' ELSE 'server account' END,
               r.rolname::text, g.rolname::text, bool_or(m.admin_option), r.oid
          FROM pg_auth_members m
          JOIN pg_roles g ON g.oid = m.roleid
          JOIN pg_roles r ON r.oid = m.member
         WHERE (g.rolsuper OR g.rolname IN ('pg_execute_server_program', 'pg_read_server_files',
                                            'pg_write_server_files'))
           AND NOT r.rolsuper
         GROUP BY r.oid, r.rolname, g.rolname) p
 ORDER BY p.oid, p.through
 LIMIT 200

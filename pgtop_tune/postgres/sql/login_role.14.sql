-- The role this session has logged in as, which RESET SESSION AUTHORIZATION goes back to, and the one it acts for.
-- Nothing is found along search_path: it may be that of a foreign role.
SELECT (SELECT r.rolname::pg_catalog.text
          FROM pg_catalog.pg_roles r
         WHERE r.oid OPERATOR(pg_catalog.=) s.usesysid) AS login,
       session_user::pg_catalog.text AS acting
  FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) s

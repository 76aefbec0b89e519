-- Sessions of clients on other machines, and those of them that are neither in TLS nor in GSSAPI encryption. Ours are
-- left out, those of another process of ours as well: same name, role and address.
SELECT count(*) AS remote,
       count(*) FILTER (WHERE NOT coalesce(s.ssl, false) AND NOT coalesce(s.gss_enc, false)) AS plain
  FROM pg_stat_get_activity(NULL) s
 CROSS JOIN pg_stat_get_activity(pg_backend_pid()) me
 WHERE s.client_addr IS NOT NULL AND NOT (s.client_addr <<= '127.0.0.0/8' OR s.client_addr = '::1')
   AND NOT (s.application_name ^@ 'pgtop-tune' AND s.usesysid = me.usesysid
            AND s.client_addr IS NOT DISTINCT FROM me.client_addr)

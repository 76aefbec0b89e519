-- Sessions of clients on other machines, and those of them that are neither in TLS nor in GSSAPI encryption.
SELECT count(*) AS remote,
       count(*) FILTER (WHERE NOT coalesce(s.ssl, false) AND NOT coalesce(s.gss_enc, false)) AS plain
  FROM pg_stat_get_activity(NULL) s
 WHERE s.client_addr IS NOT NULL AND NOT (s.client_addr <<= '127.0.0.0/8' OR s.client_addr = '::1')

-- The certificate that the server shows to clients, not its key; none where ssl is off.
SELECT current_setting('ssl_cert_file') AS file,
       pg_read_binary_file(current_setting('ssl_cert_file'), 0, 100000, true) AS pem,
       (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms
 WHERE current_setting('ssl') = 'on'

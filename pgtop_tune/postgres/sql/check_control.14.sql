-- The control file of a standby, which has the settings of its primary as the WAL brought them; nothing on a primary.
SELECT pg_read_binary_file('global/pg_control', 0, 512) AS content
 WHERE pg_is_in_recovery()

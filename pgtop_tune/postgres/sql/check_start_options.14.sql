-- The command line the server was started with, whose parameters win over those of the files.
SELECT pg_read_file('postmaster.opts') AS text

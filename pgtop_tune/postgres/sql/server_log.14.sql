-- What was written to the log since position $2 of file $1, as bytes; the last $3 bytes when that is not where we were.
SELECT f.name AS file,
       s.size,
       p.start,
       pg_read_binary_file(f.name, p.start, $3::bigint, true) AS content
  FROM (SELECT pg_current_logfile() AS name) f,
       LATERAL pg_stat_file(f.name, true) s,
       LATERAL (SELECT CASE WHEN f.name = $1::text AND s.size BETWEEN $2::bigint AND $2::bigint + $3::bigint
                            THEN $2::bigint ELSE greatest(s.size - $3::bigint, 0) END AS start) p

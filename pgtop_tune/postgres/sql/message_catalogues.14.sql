-- Message catalogues that are there, in the order of the paths.
SELECT f.number::int AS number, c.content
  FROM unnest($1::text[]) WITH ORDINALITY f(path, number),
       LATERAL (SELECT pg_read_binary_file(f.path, 0, 16777216, true) AS content) c
 WHERE c.content IS NOT NULL
 ORDER BY f.number
 LIMIT 1

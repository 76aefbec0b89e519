-- Asked only for the backends that wait for a heavyweight lock: each call locks the whole lock table.
SELECT pid, pg_blocking_pids(pid)::text[] AS blocked_by FROM unnest($1::text[]::int[]) AS pid

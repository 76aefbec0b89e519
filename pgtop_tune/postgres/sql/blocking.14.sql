-- Asked only for the backends that wait for a heavyweight lock: each call locks the whole lock table.
SELECT pid, pg_blocking_pids(pid) AS blocked_by FROM unnest($1::int[]) AS pid

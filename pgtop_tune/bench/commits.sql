-- Each client counts its transactions. A committed one leaves a row, an acknowledged one a line of pgbench's log.
-- The first follows the connection at once: -R would hold it up.
\set n :n + 1
\if :n > 1
\sleep 40 ms
\endif
INSERT INTO pgtop_tune_outage.:table (group_number, attempt, client, n) VALUES (:group_number, :attempt, :client_id, :n);

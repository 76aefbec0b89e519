-- Each client counts its transactions. A committed one leaves a row, an acknowledged one a line of pgbench's log.
\set n :n + 1
INSERT INTO pgtop_tune_outage.:table (group_number, attempt, client, n) VALUES (:group_number, :attempt, :client_id, :n);

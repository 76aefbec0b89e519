-- A ticket by its key. The number is drawn by pgbench: random() in WHERE would be evaluated for every row.
\set ticket random(1, :tickets)
SELECT ticket_id, ride_id, seat, passenger, contact, price_cents FROM bus.tickets WHERE ticket_id = :ticket;

-- A passenger has a new phone.
\set ticket random(1, :tickets)
\set phone random(0, 9999999)
UPDATE bus.tickets
SET contact = contact || pg_catalog.jsonb_build_object('phone', '+1555' || lpad((:phone)::int::text, 7, '0'))
WHERE ticket_id = :ticket;

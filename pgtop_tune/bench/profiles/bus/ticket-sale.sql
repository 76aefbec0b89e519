-- A sale as an application makes it: the ride is counted up and the ticket written, together.
\set ride random(1, :rides)
\set seat random(1, :seats)
\set name random(1, 1000000)
\set phone random(0, 9999999)
\set price random(500, 9900)
BEGIN;
UPDATE bus.rides SET tickets_sold = tickets_sold + 1 WHERE ride_id = :ride;
INSERT INTO bus.tickets (ride_id, seat, price_cents, passenger, contact)
VALUES (:ride, :seat, :price, 'Passenger ' || (:name)::int::text,
        pg_catalog.jsonb_build_object('phone', '+1555' || lpad((:phone)::int::text, 7, '0')));
END;

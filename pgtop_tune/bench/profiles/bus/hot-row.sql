-- Everybody wants the same few rides.
\set ride random(1, :hot)
UPDATE bus.rides SET tickets_sold = tickets_sold + 1 WHERE ride_id = :ride;

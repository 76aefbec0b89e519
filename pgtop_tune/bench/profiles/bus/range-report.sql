-- Takings by city of departure over two days of rides.
\set day random(0, :days - 2)
SELECT c.name, count(*) AS tickets, sum(t.price_cents) AS takings_cents
FROM bus.rides r
JOIN bus.tickets t ON t.ride_id = r.ride_id
JOIN bus.schedule s ON s.schedule_id = r.schedule_id
JOIN bus.routes u ON u.route_id = s.route_id
JOIN bus.stations f ON f.station_id = u.from_station_id
JOIN bus.cities c ON c.city_id = f.city_id
WHERE r.ride_date BETWEEN date '2024-01-01' + (:day)::int AND date '2024-01-01' + (:day)::int + 1
GROUP BY c.city_id, c.name
ORDER BY takings_cents DESC
LIMIT 10;

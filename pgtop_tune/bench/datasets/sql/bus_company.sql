INSERT INTO bus.cities
SELECT 1 + n,
       ('{Ash,Brook,Clay,Dun,Elm,Fair,Glen,Holm,Kings,Lind}'::text[])[1 + n % 10]
           || ('{bury,ford,gate,ham,mouth}'::text[])[1 + n / 10],
       20000 + (n + $seed) * 48271 % 980000
FROM generate_series(0::bigint, $cities - 1) AS n;

INSERT INTO bus.stations
SELECT 1 + n, 1 + n / 3, ('{Central,North,"Market Square"}'::text[])[1 + n % 3]
FROM generate_series(0, $stations - 1) AS n;

INSERT INTO bus.buses
SELECT 1 + n,
       'BUS-' || lpad((1 + n)::text, 6, '0'),
       ('{"Swift 40","Comet 40","Nomad 40","Heron 40"}'::text[])[1 + h % 4],
       2010 + h / 4 % 14
FROM (SELECT n, (n + $seed) * 48271 % 2147483647 * 69621 % 2147483629 AS h
      FROM generate_series(0::bigint, $buses - 1) AS n OFFSET 0) AS hashed;

INSERT INTO bus.seats
SELECT bus, seat, CASE WHEN seat <= 8 THEN 'comfort' ELSE 'standard' END
FROM generate_series(1, $buses) AS bus, generate_series(1, $seats) AS seat;

INSERT INTO bus.routes
SELECT 1 + n, 1 + origin, 1 + (origin + 3 + h / 1000 % ($stations - 5)) % $stations, 20 + h % 780
FROM (SELECT n, h, h % $stations AS origin
      FROM (SELECT n, (n + $seed) * 40692 % 2147483399 * 69621 % 2147483629 AS h
            FROM generate_series(0::bigint, $routes - 1) AS n OFFSET 0) AS hashed OFFSET 0) AS drawn;

INSERT INTO bus.schedule
SELECT 1 + n, 1 + n % $routes, 1 + n % $buses, time '00:00' + (n * 37 % 288) * interval '5 minutes'
FROM generate_series(0, $schedules - 1) AS n;

INSERT INTO bus.rides
SELECT 1 + n,
       1 + n % $schedules,
       date '2024-01-01' + n / $schedules,
       CASE WHEN n / $block_rides < $full_blocks THEN $seats ELSE coalesce(sold, 0) END
FROM generate_series(0, $rides - 1) AS n
LEFT JOIN (SELECT p * $stride % $block_tickets / $seats AS slot, count(*) AS sold
           FROM generate_series(0, $remainder - 1) AS p GROUP BY 1) AS last_block
       ON n / $block_rides = $full_blocks AND n % $block_rides = slot;

INSERT INTO bus.tickets (ticket_id, ride_id, price_cents, seat, passenger, contact)
SELECT n,
       1 + block * $block_rides + place / $seats,
       500 + h % 9400,
       1 + place % $seats,
       first_name || ' ' || last_name,
       (CASE WHEN h % 3 = 0
             THEN '{"email":"' || lower(first_name) || '.' || lower(last_name) || n % 1000 || '@example.com",'
             ELSE '{'
        END || '"phone":"+1555' || lpad((g % 10000000)::text, 7, '0') || '"}')::jsonb
FROM (SELECT n,
             h,
             (h * 16807 + n) % 2147483647 AS g,
             ('{Ada,Ben,Cleo,Dan,Eve,Finn,Gia,Hugo,Ines,Jon,Kira,Leo,Mina,Nils,Ola,Pia,Quin,Rosa,Sam,Tess,Uma,Vera,Will,Xenia,Yara,Zeno,Anna,Boris,Clara,David,Elsa,Fabio}'::text[])[1 + h % 32] AS first_name,
             ('{Ander,Berg,Cald,Dorn,Eich,Fern,Gold,Hart}'::text[])[1 + h / 32 % 8]
                 || ('{man,son,ley,ton,berg,wood,field,er}'::text[])[1 + h / 256 % 8] AS last_name,
             (n - 1) / $block_tickets AS block,
             (n - 1) % $block_tickets * $stride % $block_tickets AS place
      FROM (SELECT n, (n + $seed) * 48271 % 2147483647 * 69621 % 2147483629 * 40692 % 2147483399 AS h
            FROM generate_series($first::bigint, $last) AS n OFFSET 0) AS hashed OFFSET 0) AS drawn;

INSERT INTO bus.chunks VALUES ($chunk);

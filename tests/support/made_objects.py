"""Bad objects, rights and roles that tests make for real: part of `made_conditions`."""

from __future__ import annotations

from typing import Final

IN_A_DATABASE: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("TAB-05", "a table without a primary key", ("CREATE TABLE keyless (id int)",)),
    ("TAB-06", "an unlogged table", ("CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY)",)),
    (
        "TAB-07",
        "a partitioned table that was never analyzed",
        (
            "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (9999)",
            "INSERT INTO parted SELECT generate_series(1, 2000)",
            "ANALYZE parted_1",
        ),
    ),
    (
        "TAB-08",
        "a constraint that is NOT VALID",
        (
            "CREATE TABLE checked (id int PRIMARY KEY, x int)",
            "ALTER TABLE checked ADD CONSTRAINT positive CHECK (x > 0) NOT VALID",
        ),
    ),
    (
        "TAB-08",
        "a foreign key with disabled triggers",
        (
            "CREATE TABLE referred (id int PRIMARY KEY)",
            "CREATE TABLE referring (id int PRIMARY KEY REFERENCES referred)",
            "ALTER TABLE referring DISABLE TRIGGER ALL",
        ),
    ),
    (
        "TAB-08",
        "a disabled rule",
        (
            "CREATE TABLE kept (id int PRIMARY KEY)",
            'CREATE RULE "no;de""lete" AS ON DELETE TO kept DO INSTEAD NOTHING',
            'ALTER TABLE kept DISABLE RULE "no;de""lete"',
        ),
    ),
    (
        "TAB-08",
        "a disabled trigger",
        (
            "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TABLE audited (id int PRIMARY KEY) PARTITION BY LIST (id)",
            "CREATE TABLE audited_1 PARTITION OF audited FOR VALUES IN (1)",
            'CREATE TRIGGER "aud""it" AFTER INSERT ON audited FOR EACH ROW EXECUTE FUNCTION noted()',
            'ALTER TABLE audited DISABLE TRIGGER "aud""it"',
        ),
    ),
    (
        "TAB-09",
        "a default partition with rows",
        (
            "CREATE TABLE split (id int PRIMARY KEY) PARTITION BY LIST (id)",
            "CREATE TABLE split_rest PARTITION OF split DEFAULT",
            "INSERT INTO split VALUES (1)",
            "ANALYZE split",
        ),
    ),
    (
        "TAB-10",
        "a table and an index with fillfactor = 10",
        (
            "CREATE TABLE loose (id int PRIMARY KEY, x int) WITH (fillfactor = 10)",
            "CREATE INDEX loose_x ON loose (x) WITH (fillfactor = 10)",
        ),
    ),
    (
        "TAB-10",
        "a column with SET STATISTICS 0",
        (
            'CREATE TABLE guessed (id int PRIMARY KEY, "wo""rd" text)',
            'ALTER TABLE guessed ALTER COLUMN "wo""rd" SET STATISTICS 0',
        ),
    ),
    (
        "TAB-11",
        "thousands of large objects",
        ("SELECT count(lo_create(0)) FROM generate_series(1, 2000)", "ANALYZE pg_largeobject_metadata"),
    ),
    (
        "VAC-08",
        "a table with toast.autovacuum_enabled = off",
        ("CREATE TABLE long_rows (id int PRIMARY KEY, body text) WITH (toast.autovacuum_enabled = off)",),
    ),
    (
        "VAC-08",
        "a table with autovacuum_vacuum_scale_factor = 0.9",
        ("CREATE TABLE left_alone (id int PRIMARY KEY) WITH (autovacuum_vacuum_scale_factor = 0.9)",),
    ),
    (
        "VAC-08",
        "a table with vacuum_index_cleanup = off",
        ("CREATE TABLE uncleaned (id int PRIMARY KEY) WITH (vacuum_index_cleanup = off)",),
    ),
    (
        "IDX-01",
        "an index of a partitioned table, created ON ONLY that table",
        (
            "CREATE TABLE in_parts (id int PRIMARY KEY, x int) PARTITION BY LIST (id)",
            "CREATE TABLE in_parts_1 PARTITION OF in_parts FOR VALUES IN (1)",
            'CREATE INDEX "hol""low" ON ONLY in_parts (x)',
        ),
    ),
    (
        "IDX-05",
        "an index on (a) beside one on (a, b)",
        (
            "CREATE TABLE twice_indexed (a int PRIMARY KEY, b text, c int)",
            "CREATE INDEX long_one ON twice_indexed (b, c)",
            "CREATE INDEX short_one ON twice_indexed (b)",
        ),
    ),
    (
        "IDX-06",
        "twenty single-column indexes",
        (
            f"CREATE TABLE wide (id int PRIMARY KEY, {', '.join(f'c{number} int' for number in range(20))})",
            *(f"CREATE INDEX ON wide (c{number})" for number in range(20)),
        ),
    ),
    (
        "SEC-16",
        "a table with row security and no policy",
        ('CREATE TABLE "clo""sed" (id int PRIMARY KEY)', 'ALTER TABLE "clo""sed" ENABLE ROW LEVEL SECURITY'),
    ),
    (
        "SEC-16",
        "a table with policies but row security disabled",
        (
            'CREATE TABLE "op""en" (id int PRIMARY KEY, owner name)',
            'CREATE POLICY own ON "op""en" USING (owner = current_user)',
        ),
    ),
    (
        "SEC-17",
        "a table that PUBLIC may modify",
        ('CREATE TABLE "every""ones" (id int PRIMARY KEY)', 'GRANT ALL ON "every""ones" TO PUBLIC'),
    ),
    (
        "SEC-17",
        "a view that PUBLIC may read",
        ("CREATE VIEW visible AS SELECT 1 AS x", "GRANT SELECT ON visible TO PUBLIC"),
    ),
    (
        "SEC-17",
        "ALTER DEFAULT PRIVILEGES … TO PUBLIC",
        (
            'CREATE SCHEMA "in""ner"',
            "ALTER DEFAULT PRIVILEGES FOR ROLE ordinary GRANT ALL ON TABLES TO PUBLIC",
            'ALTER DEFAULT PRIVILEGES FOR ROLE ordinary IN SCHEMA "in""ner" GRANT SELECT, INSERT ON TABLES TO PUBLIC',
            "ALTER DEFAULT PRIVILEGES FOR ROLE ordinary GRANT CREATE ON SCHEMAS TO PUBLIC",
        ),
    ),
    ("SEC-17", "CREATE on a database to PUBLIC", ("GRANT CREATE ON DATABASE spoilt TO PUBLIC",)),
    (
        "SEC-17",
        "a user mapping for PUBLIC with a password",
        (
            "CREATE FOREIGN DATA WRAPPER far",
            'CREATE SERVER "oth""er" FOREIGN DATA WRAPPER far',
            "CREATE USER MAPPING FOR PUBLIC SERVER \"oth\"\"er\" OPTIONS (user 'x', password 'hunter2')",
        ),
    ),
    (
        "REP-06",
        "a published table without replica identity",
        ("CREATE TABLE published (id int)", "CREATE PUBLICATION news FOR TABLE published"),
    ),
    (
        "SEC-08",
        "a SECURITY DEFINER function of a superuser without search_path",
        ('CREATE FUNCTION "odd""one"(integer, text) RETURNS int SECURITY DEFINER LANGUAGE sql AS \'SELECT 1\'',),
    ),
    (
        "SEC-08",
        "a SECURITY DEFINER function of another role without search_path",
        (
            "CREATE FUNCTION ordinarys() RETURNS int SECURITY DEFINER LANGUAGE sql AS 'SELECT 1'",
            "ALTER FUNCTION ordinarys() OWNER TO ordinary",
        ),
    ),
    (
        "SEC-08",
        "a SECURITY DEFINER function of a superuser with search_path = pg_temp, public",
        (
            "CREATE FUNCTION callers() RETURNS int SECURITY DEFINER SET search_path = pg_temp, public LANGUAGE sql "
            "AS 'SELECT 1'",
        ),
    ),
    (
        "SEC-08",
        "a SECURITY DEFINER function of a superuser whose search_path does not name pg_temp",
        (
            'CREATE FUNCTION "half;"(integer) RETURNS int SECURITY DEFINER SET search_path = "$user", public '
            "LANGUAGE sql AS 'SELECT 1'",
        ),
    ),
    (
        "SEC-12",
        "rights to read pg_shadow and to run pg_read_file and lo_export",
        (
            "GRANT SELECT ON pg_shadow TO ordinary",
            "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO ordinary",
            "GRANT EXECUTE ON FUNCTION lo_export(oid, text) TO PUBLIC",
        ),
    ),
    (
        "SEC-09",
        "a disabled event trigger",
        (
            "CREATE FUNCTION resting() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "CREATE EVENT TRIGGER rests ON ddl_command_end EXECUTE FUNCTION resting()",
            "ALTER EVENT TRIGGER rests DISABLE",
        ),
    ),
    (
        "SEC-09",
        "an event trigger whose function no superuser owns",
        (
            "CREATE FUNCTION watching() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "ALTER FUNCTION watching() OWNER TO ordinary",
            "CREATE EVENT TRIGGER watches ON ddl_command_end EXECUTE FUNCTION watching()",
        ),
    ),
    (
        "COL-01",
        "a collation whose recorded version differs from the C library or ICU",
        (
            'CREATE TABLE sorted (word text COLLATE "en-x-icu" PRIMARY KEY)',
            "UPDATE pg_collation SET collversion = '1.0' WHERE collname = 'en-x-icu'",
        ),
    ),
    ("EXT-01", "an outdated extension version", ("CREATE EXTENSION pg_stat_statements VERSION '1.8'",)),
    (
        "KEY-01",
        "a descending sequence at 90 % of its range",
        ("CREATE SEQUENCE downwards AS int INCREMENT -1", "SELECT setval('downwards', -2000000000)"),
    ),
    (
        "KEY-01",
        "a descending sequence near its MINVALUE above 0",
        ("CREATE SEQUENCE to_one INCREMENT -1 MINVALUE 1 MAXVALUE 1000 START 1000", "SELECT setval('to_one', 20)"),
    ),
    (
        "KEY-01",
        "a bigint sequence near the end of its column, which has a domain over int4",
        (
            "CREATE DOMAIN number AS int",
            'CREATE TABLE "num""bered" (id number PRIMARY KEY)',
            'CREATE SEQUENCE "num""bers" OWNED BY "num""bered".id',
            'SELECT setval(\'"num""bers"\', 2000000000)',
        ),
    ),
    (
        "KEY-02",
        "an int4 column that references a bigint near the end of int4",
        (
            "CREATE TABLE widened (id bigint PRIMARY KEY)",
            "CREATE TABLE forgotten (id bigint PRIMARY KEY, widened_id int REFERENCES widened)",
            "INSERT INTO widened SELECT 2100000000 + i FROM generate_series(1, 200) i",
            "INSERT INTO forgotten SELECT id, id FROM widened",
            "CREATE INDEX ON forgotten (widened_id)",
            "ANALYZE widened, forgotten",
        ),
    ),
    (
        "KEY-01",
        "cycling sequences near their end that columns use",
        (
            "CREATE SEQUENCE rounds MAXVALUE 1000 CYCLE",
            "CREATE TABLE tickets (id int PRIMARY KEY DEFAULT nextval('rounds'))",
            "SELECT setval('rounds', 950)",
            "CREATE TABLE visits (id int GENERATED ALWAYS AS IDENTITY (CYCLE) PRIMARY KEY)",
            "SELECT setval('visits_id_seq', 2000000000)",
        ),
    ),
)
"""Check, condition in words, statements that make it. A role "ordinary" is there, and the database is "spoilt"."""

OF_ROLES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("SEC-12", "a role with BYPASSRLS", ("CREATE ROLE blind BYPASSRLS",)),
    (
        "SEC-12",
        "members of pg_execute_server_program and pg_write_server_files",
        ("CREATE ROLE runner", "GRANT pg_execute_server_program, pg_write_server_files TO runner WITH ADMIN OPTION"),
    ),
    ("SEC-12", "a member of pg_read_server_files", ("CREATE ROLE reader", "GRANT pg_read_server_files TO reader")),
    ("SEC-12", "a member of a superuser", ("CREATE ROLE deputy", "GRANT postgres TO deputy")),
    ("SEC-12", "a login with CREATEROLE", ('CREATE ROLE "cre""ator" LOGIN CREATEROLE PASSWORD \'x\'',)),
    ("SEC-12", "a login with REPLICATION", ("CREATE ROLE copier LOGIN REPLICATION PASSWORD 'x'",)),
    ("CON-07", "a database with CONNECTION LIMIT 0", ('CREATE DATABASE "sh""ut" CONNECTION LIMIT 0',)),
    ("CON-07", "a login with CONNECTION LIMIT 0", ('CREATE ROLE "sh""ut" LOGIN CONNECTION LIMIT 0 PASSWORD \'x\'',)),
    ("SEC-13", "a login without a password", ("CREATE ROLE careless LOGIN",)),
    (
        "CFG-09",
        "a role with its own settings",
        ("CREATE ROLE special LOGIN PASSWORD 'x'", "ALTER ROLE special SET work_mem = '5MB'"),
    ),
    ("SEC-07", "a login whose password has expired", ("CREATE ROLE late LOGIN PASSWORD 'x' VALID UNTIL '2020-01-01'",)),
)
"""The same of the whole server."""

"""Bad conditions that tests make for real, and the check that finds each; docs/reference/conditions.md has them."""

from __future__ import annotations

from typing import Final

PARAMETERS: Final[tuple[tuple[str, str, str], ...]] = (
    ("WAL-07", "max_wal_size", "64MB"),
    ("WAL-07", "checkpoint_timeout", "30s"),
    ("WAL-07", "checkpoint_timeout", "2h"),
    ("WAL-08", "wal_buffers", "64kB"),
    ("WAL-08", "commit_delay", "50000"),
    ("WAL-08", "wal_compression", "off"),
    ("WAL-08", "wal_sync_method", "open_sync"),
    ("DUR-07", "data_sync_retry", "on"),
    ("DUR-07", "restart_after_crash", "off"),
    ("DUR-07", "wal_consistency_checking", "all"),
    ("PLAN-04", "random_page_cost", "10"),
    ("PLAN-04", "random_page_cost", "40"),
    ("PLAN-04", "random_page_cost", "0.5"),
    ("PLAN-04", "seq_page_cost", "2"),
    ("PLAN-04", "default_statistics_target", "1"),
    ("PLAN-04", "default_statistics_target", "9000"),
    ("PLAN-04", "plan_cache_mode", "force_generic_plan"),
    ("PLAN-04", "join_collapse_limit", "1"),
    ("PLAN-04", "join_collapse_limit", "100"),
    ("PLAN-04", "from_collapse_limit", "1"),
    ("PLAN-04", "constraint_exclusion", "off"),
    ("PLAN-04", "geqo", "off"),
    ("PLAN-05", "max_parallel_workers", "64"),
    ("PLAN-05", "max_parallel_workers_per_gather", "100"),
    ("PLAN-05", "max_parallel_maintenance_workers", "100"),
    ("PLAN-05", "max_worker_processes", "2"),
    ("PLAN-05", "debug_parallel_query", "on"),
    ("VAC-07", "autovacuum_naptime", "1h"),
    ("VAC-07", "autovacuum_max_workers", "1"),
    ("VAC-07", "autovacuum_vacuum_scale_factor", "0.9"),
    ("VAC-07", "autovacuum_analyze_scale_factor", "0.9"),
    ("VAC-07", "autovacuum_vacuum_threshold", "1000000"),
    ("VAC-07", "autovacuum_analyze_threshold", "1000000"),
    ("VAC-07", "autovacuum_freeze_max_age", "2000000000"),
    ("VAC-07", "autovacuum_multixact_freeze_max_age", "2000000000"),
    ("VAC-07", "autovacuum_freeze_max_age", "1000000"),
    ("VAC-07", "autovacuum_multixact_freeze_max_age", "1000000"),
    ("VAC-07", "vacuum_failsafe_age", "1000000"),
    ("VAC-07", "vacuum_multixact_failsafe_age", "1000000"),
    ("VAC-07", "vacuum_cost_delay", "20ms"),
    ("CON-05", "statement_timeout", "100ms"),
    ("CON-05", "lock_timeout", "10ms"),
    ("CON-05", "idle_in_transaction_session_timeout", "10ms"),
    ("CON-05", "idle_in_transaction_session_timeout", "1d"),
    ("CON-05", "idle_session_timeout", "1h"),
    ("CON-05", "deadlock_timeout", "1ms"),
    ("CON-05", "deadlock_timeout", "1min"),
    ("CON-05", "max_locks_per_transaction", "10"),
    ("CON-05", "superuser_reserved_connections", "0"),
    ("REP-05", "wal_sender_timeout", "0"),
    ("REP-05", "wal_sender_timeout", "1s"),
    ("REP-05", "wal_receiver_timeout", "0"),
    ("REP-05", "wal_receiver_timeout", "1s"),
    ("CFG-08", "session_replication_role", "replica"),
    ("CFG-08", "ignore_system_indexes", "on"),
    ("CFG-08", "allow_system_table_mods", "on"),
    ("CFG-08", "default_transaction_read_only", "on"),
    ("CFG-08", "standard_conforming_strings", "off"),
    ("CFG-08", "backslash_quote", "on"),
    ("CFG-08", "transform_null_equals", "on"),
    ("CFG-08", "row_security", "off"),
    ("CFG-08", "default_transaction_isolation", "serializable"),
    ("MEM-08", "maintenance_work_mem", "1MB"),
    ("MEM-08", "autovacuum_work_mem", "1MB"),
    ("MEM-08", "temp_buffers", "4GB"),
    ("MEM-08", "hash_mem_multiplier", "100"),
    ("MEM-08", "dynamic_shared_memory_type", "mmap"),
    ("MEM-08", "shared_memory_type", "sysv"),
    ("BGW-04", "bgwriter_delay", "10s"),
    ("BGW-04", "bgwriter_lru_multiplier", "0.1"),
    ("BGW-04", "bgwriter_lru_maxpages", "5"),
    ("LOG-06", "log_min_messages", "panic"),
    ("LOG-06", "log_min_error_statement", "panic"),
    ("LOG-06", "log_error_verbosity", "terse"),
    ("LOG-06", "log_line_prefix", ""),
    ("LOG-06", "log_destination", "csvlog"),
    ("OBS-04", "track_activities", "off"),
    ("OBS-04", "track_activity_query_size", "100"),
)
"""Check, parameter of the server, value."""

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
        "a foreign key whose triggers are off",
        (
            "CREATE TABLE referred (id int PRIMARY KEY)",
            "CREATE TABLE referring (id int PRIMARY KEY REFERENCES referred)",
            "ALTER TABLE referring DISABLE TRIGGER ALL",
        ),
    ),
    (
        "VAC-08",
        "a table with autovacuum_vacuum_scale_factor = 0.9",
        ("CREATE TABLE left_alone (id int PRIMARY KEY) WITH (autovacuum_vacuum_scale_factor = 0.9)",),
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
        "REP-06",
        "a published table without replica identity",
        ("CREATE TABLE published (id int)", "CREATE PUBLICATION news FOR TABLE published"),
    ),
    (
        "SEC-08",
        "a SECURITY DEFINER function without search_path",
        ('CREATE FUNCTION "odd""one"(integer, text) RETURNS int SECURITY DEFINER LANGUAGE sql AS \'SELECT 1\'',),
    ),
    (
        "SEC-09",
        "an event trigger whose function is no superuser's",
        (
            "CREATE FUNCTION watching() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "ALTER FUNCTION watching() OWNER TO ordinary",
            "CREATE EVENT TRIGGER watches ON ddl_command_end EXECUTE FUNCTION watching()",
        ),
    ),
    (
        "COL-01",
        "a collation of another version than that of the C library or ICU",
        (
            'CREATE TABLE sorted (word text COLLATE "en-x-icu" PRIMARY KEY)',
            "UPDATE pg_collation SET collversion = '1.0' WHERE collname = 'en-x-icu'",
        ),
    ),
    ("EXT-01", "an extension of an old version", ("CREATE EXTENSION pg_stat_statements VERSION '1.8'",)),
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
)
"""Check, condition in words, statements that make it. A role "ordinary" is there."""

OF_ROLES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("SEC-12", "a role with BYPASSRLS", ("CREATE ROLE blind BYPASSRLS",)),
    (
        "SEC-12",
        "members of pg_execute_server_program and pg_write_server_files",
        ("CREATE ROLE runner", "GRANT pg_execute_server_program, pg_write_server_files TO runner WITH ADMIN OPTION"),
    ),
    ("SEC-12", "a member of pg_read_server_files", ("CREATE ROLE reader", "GRANT pg_read_server_files TO reader")),
    ("SEC-13", "a login without a password", ("CREATE ROLE careless LOGIN",)),
    ("CFG-09", "a role with settings of its own", ("CREATE ROLE special", "ALTER ROLE special SET work_mem = '5MB'")),
    ("SEC-07", "a login whose password has expired", ("CREATE ROLE late LOGIN PASSWORD 'x' VALID UNTIL '2020-01-01'",)),
)
"""The same of the whole server."""

RULES: Final[tuple[tuple[str, str], ...]] = (
    ("SEC-15", "host all all 127.0.0.1/32 trust"),
    ("SEC-14", "host all all 10.0.0.0/8 md5"),
    ("SEC-01", "host all all 0.0.0.0/0 trust"),
    ("SEC-01", "host all all 10.0.0.0/8 password"),
)
"""Check, line of pg_hba.conf."""

ELSEWHERE: Final[tuple[tuple[str, str], ...]] = (
    ("ARC-05", "WAL that was not archived for long, and archive_timeout = 0"),
    ("BAK-01", "a base backup that is long ago"),
    ("SEC-10", "ssl_min_protocol_version = TLSv1"),
    ("SEC-11", "a certificate that ends in two days"),
    ("EXT-02", "an extension whose library is not preloaded"),
    ("COL-01", "a database whose collation has another version"),
    ("CON-06", "no statement_timeout, lock_timeout or temp_file_limit anywhere"),
    ("TIME-01", "a clock that nothing keeps right"),
    ("LOG-07", "a server whose stderr is /dev/null"),
)
"""Made by tests of their own."""

ARCHIVE_COMMANDS: Final = ("/bin/true", "true", ":", "exit 0", "/bin/true %p", "echo %p", "cp %p /dev/null", "date")
"""Found by ARC-04."""


def made_for_real() -> set[str]:
    """Checks of which a test makes the condition on a real server."""
    rows = (*PARAMETERS, *IN_A_DATABASE, *OF_ROLES, *RULES, *ELSEWHERE)
    return {row[0] for row in rows} | {"ARC-04"}

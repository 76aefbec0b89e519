"""The unsafe values of the settings of PostgreSQL 14 to 19: the one table of the durability fence.

A setting is safe at every value (`metrics/value_risks.SAFE`), or has rows here: a class, a condition on the value, and a
reason. Each row answers one question: can this value, if it stays, lose data, run code, lock out, hang, or disturb other
sessions? A setting in neither, of a newer major or of an extension, is unknown and needs the operator's consent.

Source: PostgreSQL documentation, "Server Configuration" of each major, "Reliability and the Write-Ahead Log",
"Developer Options", "Additional Supplied Modules"; guc_tables.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.metrics.value_risks import (
    ANOTHER_ENCODING,
    ANY,
    EMPTY,
    LOWER,
    NEW,
    NO_COMMAND,
    NO_LOG_NAME,
    NOT_EMPTY,
    OFF,
    ON,
    OTHER,
    OUTSIDE,
    SAFE,
    SAFE_EXTENSIONS,
    Condition,
    RiskClass,
    ValueRisk,
    above,
    below,
    matching,
    one_of,
    when_new,
)
from pgtop_tune.model.postgres import Parameter


def risk_of(name: str, value: str | None, parameter: Parameter | None = None) -> ValueRisk | None:
    """Return the risk of a value, None where it is safe.

    Args:
        name: Setting, in any case.
        value: Value as typed or in the form of pg_settings; None for a reset, which is never fenced.
        parameter: The row of pg_settings; without it the server's default, unit and value are not known.
    """
    if value is None:
        return None
    key = name.lower()
    rows = RISKS.get(key)
    if rows is None:
        return None if key in SAFE or key.partition(".")[0] in SAFE_EXTENSIONS else unknown_setting(name)
    return next((row for row in rows if row.condition.applies(value.strip(), parameter)), None)


def unknown_setting(name: str) -> ValueRisk:
    """Return the risk of a setting that this table does not have."""
    return ValueRisk(name=name, kind=RiskClass.UNKNOWN, condition=ANY, reason="its risk is unknown", announced=False)


_TRIED: Final = "tried with a deadline"
_ANNOUNCED: Final = "announced"


def _risks(kind: RiskClass, *rows: tuple[str, Condition, str, *tuple[str, ...]]) -> Iterable[ValueRisk]:
    """Yield the risks of one class.

    Args:
        kind: The class.
        rows: Names of settings, the condition and the reason that they share, and `_TRIED` or `_ANNOUNCED`, see ValueRisk.
    """
    for names, condition, reason, *marks in rows:
        for name in names.split():
            yield ValueRisk(
                name=name,
                kind=kind,
                condition=condition,
                reason=reason,
                tried_with_deadline=_TRIED in marks,
                announced=_ANNOUNCED in marks,
            )


_CORRUPTION: Final = "after a crash of the machine: pages become unreadable or silently hold old contents"
_NO_STANDBY: Final = (
    "acknowledged commits that no standby has received, if this server is lost and a standby takes over"
)
_BLOAT: Final = "dead rows pile up as without autovacuum, and near wraparound the server refuses writes"
_ENDED: Final = "longer sessions or statements are ended, including those of backups and connection pools"
_MEMORY: Final = "sessions that use this much exhaust memory, and the kernel kills the server"
_FULL_DISK: Final = "WAL accumulates, and a full disk stops the server"
_MEANING: Final = "the meaning of values entered as text: wrong times and amounts are stored without an error"
_TARGETS: Final = "recovery_target recovery_target_lsn recovery_target_name recovery_target_time recovery_target_xid"

_USUAL_SCHEMAS: Final = frozenset({"$user", "public", "pg_catalog"})
_OTHER_SCHEMAS: Final = Condition(
    "with schemas other than $user, public and pg_catalog, or with none",
    lambda value, _: any(schema.strip().strip('"') not in _USUAL_SCHEMAS for schema in value.split(",")),
)

_TABLE: Final = (
    *_risks(
        RiskClass.LOSES_ON_CRASH,
        ("fsync", OFF, f"the whole cluster, {_CORRUPTION}", _ANNOUNCED),
        ("full_page_writes", OFF, f"tables and indexes, {_CORRUPTION}", _ANNOUNCED),
        (
            "wal_sync_method",
            Condition("any method other than the default", OTHER.applies),
            "acknowledged commits, if that method does not flush the drive's cache",
            _ANNOUNCED,
        ),
        (
            "synchronous_commit",
            OFF,
            "acknowledged commits of the last 3 × wal_writer_delay (600 ms by default); the data stay consistent",
            _TRIED,
            _ANNOUNCED,
        ),
        ("synchronous_commit", one_of("local"), _NO_STANDBY, _TRIED, _ANNOUNCED),
        ("synchronous_standby_names", EMPTY, _NO_STANDBY, _TRIED),
        (
            "wal_sender_shutdown_timeout",
            below("10s", "ms", above=-1),
            "commits that a standby has not received when this server shuts down, if that standby takes over",
        ),
        (
            "data_sync_retry",
            ON,
            "pages whose write failed once: the kernel may drop them before the second fsync",
            _ANNOUNCED,
        ),
        ("ignore_invalid_pages", ON, "pages that recovery cannot find: it continues without them", _ANNOUNCED),
        (
            "recovery_init_sync_method",
            one_of("syncfs"),
            "data whose write failed before a crash: Linux before 5.8 does not report the error",
        ),
    ),
    *_risks(
        RiskClass.LOSES_AT_ONCE,
        (
            "wal_level",
            one_of("minimal"),
            "point-in-time recovery and every standby: neither can continue past this point",
            _ANNOUNCED,
        ),
        ("archive_mode", OFF, "point-in-time recovery: WAL is no longer archived"),
        (
            "archive_command",
            NO_COMMAND,
            "the WAL archive: segments are recycled without a copy, and backups cannot be recovered past this point",
            _ANNOUNCED,
        ),
        (
            "basic_archive.archive_directory",
            NEW,
            "the WAL archive: segments go to another directory, or fill the WAL disk if that is not a directory",
        ),
        ("summarize_wal", when_new(OFF), "incremental backups: the next one needs a new full backup"),
        (
            "wal_summary_keep_time",
            below("1d", "min", above=0),
            "incremental backups whose previous backup is older than this",
        ),
        ("track_commit_timestamp", when_new(OFF), "the recorded times of all commits so far"),
        ("sync_replication_slots", when_new(OFF), "logical replication when a standby takes over"),
        (
            "autovacuum",
            OFF,
            "vacuuming: dead rows pile up, and near wraparound the server refuses writes",
            _ANNOUNCED,
        ),
        ("track_counts", OFF, "vacuuming: autovacuum does not run, as with autovacuum=off", _ANNOUNCED),
        ("zero_damaged_pages", ON, "every row of a page with a damaged header, permanently", _ANNOUNCED),
        ("ignore_checksum_failure", ON, "detection of damaged data: the damage spreads", _ANNOUNCED),
        ("allow_system_table_mods", ON, "the system catalogs: a statement can corrupt them", _ANNOUNCED),
        (
            "session_replication_role",
            one_of("replica"),
            "consistency: foreign keys, triggers and rules are not applied to writes",
            _ANNOUNCED,
        ),
        ("event_triggers", OFF, "the checks and records of event triggers", _ANNOUNCED),
        (
            "max_slot_wal_keep_size",
            below("1GB", "MB", above=-1),
            "replication slots that lag by more: their standbys and subscribers must be rebuilt",
        ),
        (
            "idle_replication_slot_timeout",
            OTHER,
            "replication slots that are idle for longer: their standbys and subscribers must be rebuilt",
        ),
        (
            "gin_fuzzy_search_limit",
            above("0"),
            "rows found through GIN indexes: a random subset is returned",
            _ANNOUNCED,
        ),
        (
            "transform_null_equals",
            ON,
            "the meaning of `= NULL`: statements can change unintended rows",
            _ANNOUNCED,
        ),
        ("array_nulls", OFF, "NULL in arrays entered as text: it becomes the string NULL", _ANNOUNCED),
        ("extra_float_digits", below("0"), "digits of floating-point numbers, also in dumps", _ANNOUNCED),
        ("datestyle intervalstyle timezone timezone_abbreviations lc_monetary lc_numeric", NEW, _MEANING),
        (
            "plpgsql.variable_conflict",
            OTHER,
            "the meaning of names in functions: they can change unintended rows",
        ),
        ("plpgsql.check_asserts", OFF, "the ASSERT checks in functions", _TRIED),
        ("check_function_bodies", OFF, "validation of new functions: faulty ones are accepted", _TRIED),
        ("isn.weak", ON, "validation of ISBN and similar numbers: invalid ones are stored"),
        (
            "lo_compat_privileges",
            ON,
            "access control on large objects: every role can write all of them",
            _ANNOUNCED,
        ),
        ("sepgsql.permissive", ON, "protection by SELinux: violations are only logged"),
        ("gss_accept_delegation", ON, "clients' Kerberos credentials: functions on the server can use them"),
        (
            "password_encryption",
            one_of("md5"),
            "the protection of new passwords; logins that require SCRAM reject them",
        ),
        (
            "scram_iterations",
            below("4096"),
            "the protection of new passwords: they are easier to guess",
        ),
        (
            "passwordcheck.min_password_length",
            below("8"),
            "the protection of new passwords: they are easier to guess",
        ),
        (
            "log_min_messages",
            matching("fatal|panic", "fatal or panic"),
            "errors and warnings in the log, and alerts that rely on them",
            _TRIED,
        ),
        ("log_destination", EMPTY, "the log, and alerts that rely on it", _TRIED),
        ("logging_collector", when_new(OFF), "the log, unless the server's standard error is captured"),
        ("log_truncate_on_rotation", when_new(ON), "older lines of a log file whose name is reused"),
        (
            "log_file_mode",
            matching("[1-7]$", "a mode that grants rights to other accounts"),
            "the privacy of the log: other accounts can read or change it",
            _TRIED,
        ),
        (
            "promote_trigger_file",
            NOT_EMPTY,
            "the standby: it is promoted when that file exists",
        ),
        (_TARGETS, NOT_EMPTY, "changes after that point: recovery ends there"),
        (
            "recovery_target_action recovery_target_inclusive recovery_target_timeline",
            OTHER,
            "changes that recovery would otherwise replay",
        ),
        ("external_pid_file", NOT_EMPTY, "the file of that name: the server overwrites it at startup"),
    ),
    *_risks(
        RiskClass.RUNS_CODE,
        (
            "archive_command archive_cleanup_command recovery_end_command restore_command ssl_passphrase_command"
            " basebackup_to_shell.command",
            NOT_EMPTY,
            "a shell command under the server's account",
        ),
        ("basebackup_to_shell.required_role", NEW, "it decides which roles may run basebackup_to_shell.command"),
        ("ssl_passphrase_command_supports_reload", ON, "ssl_passphrase_command at each reload"),
        (
            "session_preload_libraries local_preload_libraries",
            NOT_EMPTY,
            "libraries in each new session; a library that crashes ends every session of the server",
        ),
        (
            "archive_library shared_preload_libraries oauth_validator_libraries",
            NOT_EMPTY,
            "libraries in the server's processes",
        ),
        ("output_plugin_libraries", OTHER, "libraries that roles with REPLICATION can load"),
        (
            "dynamic_library_path jit_provider extension_control_path extension_destdir",
            OTHER,
            "it decides which libraries and scripts are loaded",
        ),
        (
            "plperl.on_init plperl.on_plperl_init plperl.on_plperlu_init pltcl.start_proc pltclu.start_proc plv8.start_proc",
            NOT_EMPTY,
            "in each session, before its first function in that language",
        ),
        (
            "search_path",
            _OTHER_SCHEMAS,
            "names in statements and functions can refer to objects in another schema, or to none",
            _TRIED,
        ),
        ("log_directory", OUTSIDE, "the server appends lines with text from clients to files in that directory"),
        ("log_filename", NO_LOG_NAME, "the server appends lines with text from clients to that file"),
    ),
    *_risks(
        RiskClass.LOCKS_OUT,
        # Logins.
        (
            "port unix_socket_directories unix_socket_group unix_socket_permissions",
            NEW,
            "clients cannot find the server, or lack access to its socket",
        ),
        ("listen_addresses", EMPTY, "no client can connect over TCP/IP"),
        ("max_connections", below("20"), "further sessions are refused"),
        ("superuser_reserved_connections", below("1"), "superusers cannot connect once all connections are in use"),
        (
            "superuser_reserved_connections reserved_connections",
            above("20"),
            "fewer connections remain for others; at max_connections or more the server does not start",
        ),
        ("authentication_timeout", below("5s", "s"), "slower logins are refused"),
        ("pre_auth_delay post_auth_delay", above("0", "s"), "each login waits for this time"),
        (
            "auth_delay.milliseconds",
            above("1s", "ms"),
            "each failed login holds a connection for this time, until none is left",
        ),
        ("scram_iterations", above("100000"), "each login takes more CPU time, in the client too"),
        ("passwordcheck.min_password_length", above("64"), "no new password can be set"),
        ("log_hostname", ON, "each login waits for a DNS server", _TRIED),
        ("ssl", OFF, "clients that require TLS are refused, the others send unencrypted"),
        ("ssl", when_new(ON), "without a certificate and its key the server does not restart"),
        (
            "ssl_ca_file ssl_cert_file ssl_ciphers ssl_crl_dir ssl_crl_file ssl_dh_params_file ssl_ecdh_curve ssl_groups"
            " ssl_key_file ssl_max_protocol_version ssl_min_protocol_version ssl_sni ssl_tls13_ciphers",
            OTHER,
            "clients that need another certificate, cipher or protocol are refused",
        ),
        ("db_user_namespace krb_caseins_users", ON, "a role name can refer to another role at login"),
        (
            "config_file data_directory hba_file hosts_file ident_file krb_server_keyfile stats_temp_directory",
            OTHER,
            "it decides which clients are allowed to log in, or where the server finds its files",
        ),
        ("role session_authorization", ANY, "sessions begin as another role, with its rights"),
        (
            "client_encoding",
            ANOTHER_ENCODING,
            "databases whose encoding has no conversion to it refuse every login",
            _TRIED,
        ),
        ("allow_alter_system", OFF, "ALTER SYSTEM is then refused, even to revert this value"),
        # Running sessions and statements.
        (
            "statement_timeout transaction_timeout idle_session_timeout idle_in_transaction_session_timeout lock_timeout",
            below("1s", "ms", above=0),
            _ENDED,
            _TRIED,
            _ANNOUNCED,
        ),
        (
            "wal_sender_timeout wal_receiver_timeout tcp_user_timeout",
            below("10s", "ms", above=0),
            "connections over a slow network, including those of standbys, are cut repeatedly",
            _TRIED,
        ),
        (
            "tcp_keepalives_idle tcp_keepalives_interval",
            below("5s", "s", above=0),
            "connections over a slow network are cut",
            _TRIED,
        ),
        ("tcp_keepalives_count", below("3", above=0), "connections over a slow network are cut", _TRIED),
        (
            "max_standby_archive_delay max_standby_streaming_delay",
            below("1s", "ms", above=-1),
            "queries on a standby that conflict with recovery are cancelled at once",
            _TRIED,
        ),
        (
            "max_standby_archive_delay max_standby_streaming_delay",
            below("0", "ms"),
            "recovery on a standby waits indefinitely for conflicting queries",
            _TRIED,
        ),
        (
            "default_transaction_read_only transaction_read_only",
            ON,
            "every transaction that writes fails",
            _TRIED,
            _ANNOUNCED,
        ),
        (
            "default_transaction_isolation transaction_isolation",
            one_of("serializable", "repeatable read"),
            "transactions can fail with serialization errors, which clients must retry",
            _TRIED,
        ),
        ("exit_on_error", ON, "each error ends its session", _TRIED, _ANNOUNCED),
        ("row_security", OFF, "statements on tables with row security fail", _TRIED, _ANNOUNCED),
        (
            "restrict_nonsystem_relation_kind",
            NOT_EMPTY,
            "statements on views or foreign tables fail",
            _TRIED,
        ),
        ("pgcrypto.builtin_crypto_enabled", OTHER, "functions of pgcrypto fail", _TRIED),
        ("plpgsql.extra_errors", OTHER, "functions with such constructs cannot be created", _TRIED),
        ("plperl.use_strict", ON, "functions that do not comply with `use strict` fail", _TRIED),
        (
            "debug_parallel_query force_parallel_mode",
            one_of("on", "regress"),
            "statements with functions wrongly marked PARALLEL SAFE fail, and others are slower",
            _TRIED,
        ),
        (
            "standard_conforming_strings",
            OFF,
            "backslashes in strings change their meaning: statements fail or allow SQL injection",
            _TRIED,
            _ANNOUNCED,
        ),
        (
            "backslash_quote",
            ON,
            "in some encodings strings can end early, which allows SQL injection",
            _TRIED,
            _ANNOUNCED,
        ),
        ("max_stack_depth", below("1MB", "kB"), "statements with deeper nesting fail", _TRIED),
        ("temp_file_limit", below("1GB", "kB", above=-1), "statements that need more temporary space fail", _TRIED),
        ("max_locks_per_transaction", below("64"), "statements on many tables, and pg_dump, fail"),
        (
            "max_prepared_transactions",
            LOWER,
            "with more prepared transactions than this the server does not start",
        ),
        (
            "max_worker_processes",
            below("4"),
            "extensions, logical replication and parallel queries get no worker",
        ),
        ("old_snapshot_threshold", OTHER, "longer statements fail"),
        # Replication and recovery.
        (
            "synchronous_standby_names",
            NOT_EMPTY,
            "each commit waits for these standbys, indefinitely if one is not connected",
            _TRIED,
        ),
        (
            "synchronized_standby_slots",
            NOT_EMPTY,
            "logical replication waits for these slots, indefinitely if one is not in use",
            _TRIED,
        ),
        (
            "recovery_min_apply_delay",
            above("0", "ms"),
            "a standby lags by this time; commits that wait for it to apply them hang",
            _TRIED,
        ),
        (
            "wal_retrieve_retry_interval",
            above("1min", "ms"),
            "a standby or a subscription that lost its connection waits for this time",
            _TRIED,
        ),
        ("primary_conninfo primary_slot_name", OTHER, "a standby follows another server, or none"),
        ("hot_standby", OFF, "a standby accepts no connections"),
        (
            "max_wal_senders max_replication_slots max_active_replication_origins max_logical_replication_workers"
            " max_sync_workers_per_subscription",
            below("1"),
            "replication and base backups stop",
        ),
        (
            "debug_logical_replication_streaming",
            one_of("immediate"),
            "each change of a transaction is sent or spilled individually",
            _TRIED,
        ),
        # Disk, memory and time.
        ("archive_command archive_library", when_new(EMPTY), f"WAL is not archived: {_FULL_DISK}"),
        (
            "archive_mode",
            when_new(one_of("on", "always")),
            f"WAL is kept until it is archived; if archiving fails, {_FULL_DISK}",
        ),
        (
            "archive_timeout",
            below("10s", "s", above=0),
            "a 16 MB segment is archived at this interval, until the archive's disk is full",
            _TRIED,
        ),
        ("wal_keep_size max_wal_size min_wal_size", above("256GB", "MB"), _FULL_DISK, _TRIED),
        (
            "wal_consistency_checking",
            NOT_EMPTY,
            "each change writes whole pages to WAL, and a standby that finds a difference stops",
            _TRIED,
        ),
        (
            "debug_print_parse debug_print_plan debug_print_raw_parse debug_print_rewritten",
            ON,
            "the log receives the tree of each statement, until its disk is full",
            _TRIED,
        ),
        (
            "log_min_messages",
            matching("debug", "debug1 to debug5"),
            "the log receives each internal step of the server, until its disk is full",
            _TRIED,
        ),
        ("jit_dump_bitcode", ON, "each compiled statement leaves files in the data directory", _TRIED),
        ("send_abort_for_crash send_abort_for_kill", ON, "child processes ended after a crash leave core files"),
        ("remove_temp_files_after_crash", OFF, "temporary files remain after a crash, until the disk is full"),
        ("allow_in_place_tablespaces", ON, "tablespaces can fill the disk of the data directory"),
        ("work_mem", above("4GB", "kB"), _MEMORY, _TRIED),
        ("temp_buffers", above("4GB", "8kB"), _MEMORY, _TRIED),
        ("hash_mem_multiplier", above("100"), _MEMORY, _TRIED),
        (
            "geqo_pool_size geqo_generations",
            above("10000"),
            "planning of joins with many tables takes minutes, or runs out of memory",
            _TRIED,
        ),
        ("maintenance_work_mem autovacuum_work_mem", above("64GB", "kB"), _MEMORY, _TRIED),
        (
            "autovacuum_freeze_max_age autovacuum_multixact_freeze_max_age vacuum_failsafe_age"
            " vacuum_multixact_failsafe_age",
            above("1600000000"),
            "vacuum begins too late, and near wraparound the server refuses writes",
        ),
        ("autovacuum_naptime", above("1h", "s"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_scale_factor", above("1"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_threshold", above("10000000"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_cost_delay", above("20ms", "ms"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_cost_limit vacuum_cost_limit", below("50", above=0), _BLOAT, _TRIED),
        ("vacuum_cost_page_dirty vacuum_cost_page_hit vacuum_cost_page_miss", above("200"), _BLOAT, _TRIED),
        ("vacuum_defer_cleanup_age", above("0"), "dead rows remain for this many transactions", _TRIED),
        (
            "deadlock_timeout",
            above("1min", "ms"),
            "deadlocked sessions hang for this time",
            _TRIED,
        ),
        (
            "from_collapse_limit join_collapse_limit geqo_threshold",
            above("20"),
            "planning time and memory can grow without limit",
            _TRIED,
        ),
        (
            "debug_discard_caches",
            above("0"),
            "the server becomes about a hundred times slower",
            _TRIED,
            _ANNOUNCED,
        ),
        ("ignore_system_indexes", ON, "each catalog lookup scans the whole table", _TRIED),
        ("debug_io_direct", NOT_EMPTY, "reads and writes bypass the kernel's page cache and become slow"),
        ("restart_after_crash", OFF, "the server stays down after one session crashes"),
    ),
)
RISKS: Final[Mapping[str, tuple[ValueRisk, ...]]] = MappingProxyType(
    {row.name: tuple(risk for risk in _TABLE if risk.name == row.name) for row in _TABLE}
)
"""Setting → its rows; the first that applies to a value counts."""

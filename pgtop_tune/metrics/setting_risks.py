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
    return ValueRisk(
        name=name, kind=RiskClass.UNKNOWN, condition=ANY, reason="its risk cannot be said", announced=False
    )


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


_CORRUPTION: Final = "after a crash of the machine: pages cannot be read or silently hold old contents"
_NO_STANDBY: Final = "acknowledged commits that no standby has yet, if this server is lost and a standby takes over"
_BLOAT: Final = "dead rows pile up as without autovacuum, and near wraparound the server stops writing"
_ENDED: Final = "sessions and statements that take longer are ended, those of backups and of pools too"
_MEMORY: Final = "sessions that use so much leave no memory, and the kernel ends the server"
_FULL_DISK: Final = "so much WAL stays: a full disk stops the server"
_MEANING: Final = (
    "the meaning of what is typed and read as text: other moments and amounts are stored, without an error"
)
_TARGETS: Final = "recovery_target recovery_target_lsn recovery_target_name recovery_target_time recovery_target_xid"

_USUAL_SCHEMAS: Final = frozenset({"$user", "public", "pg_catalog"})
_OTHER_SCHEMAS: Final = Condition(
    "of other schemas than $user, public and pg_catalog, or of none",
    lambda value, _: any(schema.strip().strip('"') not in _USUAL_SCHEMAS for schema in value.split(",")),
)

_TABLE: Final = (
    *_risks(
        RiskClass.LOSES_ON_CRASH,
        ("fsync", OFF, f"the whole cluster, {_CORRUPTION}", _ANNOUNCED),
        ("full_page_writes", OFF, f"tables and indexes, {_CORRUPTION}", _ANNOUNCED),
        (
            "wal_sync_method",
            Condition("any other method", OTHER.applies),
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
            "commits that standbys have not received when this server is shut down, if one takes over",
        ),
        (
            "data_sync_retry",
            ON,
            "pages whose write failed once: the kernel may have dropped them before the second fsync",
            _ANNOUNCED,
        ),
        ("ignore_invalid_pages", ON, "pages that a recovery cannot find: it goes on without them", _ANNOUNCED),
        (
            "recovery_init_sync_method",
            one_of("syncfs"),
            "what could not be written before a crash, where the kernel does not tell of it (Linux before 5.8)",
        ),
    ),
    *_risks(
        RiskClass.LOSES_AT_ONCE,
        (
            "wal_level",
            one_of("minimal"),
            "point-in-time recovery and every standby: none can continue from here",
            _ANNOUNCED,
        ),
        ("archive_mode", OFF, "point-in-time recovery: WAL is not archived from here on"),
        (
            "archive_command",
            NO_COMMAND,
            "the WAL archive: segments are recycled without a copy, and backups cannot be recovered past here",
            _ANNOUNCED,
        ),
        (
            "basic_archive.archive_directory",
            NEW,
            "the WAL archive: segments go elsewhere, or fill the disk where that is no directory",
        ),
        ("summarize_wal", when_new(OFF), "incremental backups: none follows on the last one"),
        (
            "wal_summary_keep_time",
            below("1d", "min", above=0),
            "incremental backups that follow on older ones",
        ),
        ("track_commit_timestamp", when_new(OFF), "the times of all commits so far"),
        ("sync_replication_slots", when_new(OFF), "logical replication when a standby takes over"),
        (
            "autovacuum",
            OFF,
            "nothing at first; dead rows pile up, and near wraparound the server stops writing",
            _ANNOUNCED,
        ),
        ("track_counts", OFF, "autovacuum does not run; as autovacuum=off", _ANNOUNCED),
        ("zero_damaged_pages", ON, "every row of a page whose header is damaged, for good", _ANNOUNCED),
        ("ignore_checksum_failure", ON, "the means to recognise damaged data; damage spreads", _ANNOUNCED),
        ("allow_system_table_mods", ON, "catalogs: nothing keeps a statement from breaking them", _ANNOUNCED),
        (
            "session_replication_role",
            one_of("replica"),
            "consistency: foreign keys, triggers and rules do not act on what is written",
            _ANNOUNCED,
        ),
        ("event_triggers", OFF, "what event triggers refuse or record", _ANNOUNCED),
        (
            "max_slot_wal_keep_size",
            below("1GB", "MB", above=-1),
            "replication slots that lag by more: their standbys and subscribers have to be made anew",
        ),
        (
            "idle_replication_slot_timeout",
            OTHER,
            "replication slots that are idle for longer: their standbys and subscribers have to be made anew",
        ),
        (
            "gin_fuzzy_search_limit",
            above("0"),
            "rows of searches through GIN indexes: a random part is left out",
            _ANNOUNCED,
        ),
        (
            "transform_null_equals",
            ON,
            "the meaning of `= NULL`: statements can change other rows than meant",
            _ANNOUNCED,
        ),
        ("array_nulls", OFF, "NULL in arrays that are read from text: it becomes the word", _ANNOUNCED),
        ("extra_float_digits", below("0"), "digits of floating-point numbers, in dumps too", _ANNOUNCED),
        ("datestyle intervalstyle timezone timezone_abbreviations lc_monetary lc_numeric", NEW, _MEANING),
        (
            "plpgsql.variable_conflict",
            OTHER,
            "the meaning of names in functions: they can change other rows than meant",
        ),
        ("plpgsql.check_asserts", OFF, "what functions assert before they go on", _TRIED),
        ("check_function_bodies", OFF, "the check of functions: faulty ones are kept", _TRIED),
        ("isn.weak", ON, "the check of ISBN and the like: invalid ones are stored"),
        (
            "lo_compat_privileges",
            ON,
            "the protection of large objects: every role can write all of them",
            _ANNOUNCED,
        ),
        ("sepgsql.permissive", ON, "the protection by SELinux: what it forbids is only written to the log"),
        ("gss_accept_delegation", ON, "clients' Kerberos credentials: functions of the server can use them"),
        (
            "password_encryption",
            one_of("md5"),
            "the protection of passwords that are set from then on; logins that ask for SCRAM refuse them",
        ),
        (
            "scram_iterations",
            below("4096"),
            "the protection of passwords that are set from then on: they are guessed sooner",
        ),
        (
            "passwordcheck.min_password_length",
            below("8"),
            "the protection of passwords that are set from then on: they are guessed sooner",
        ),
        (
            "log_min_messages",
            matching("fatal|panic", "fatal or panic"),
            "errors and warnings in the log, and what watches for them",
            _TRIED,
        ),
        ("log_destination", EMPTY, "the log, and what watches it", _TRIED),
        ("logging_collector", when_new(OFF), "the log, where nobody reads the server's standard error"),
        ("log_truncate_on_rotation", when_new(ON), "older lines of a log file that is used again"),
        (
            "log_file_mode",
            matching("[1-7]$", "a mode with rights for others"),
            "the privacy of the log: other accounts can read or change it",
            _TRIED,
        ),
        (
            "promote_trigger_file",
            NOT_EMPTY,
            "the standby: it becomes a primary when that file is there",
        ),
        (_TARGETS, NOT_EMPTY, "what comes after that point: a recovery ends there"),
        (
            "recovery_target_action recovery_target_inclusive recovery_target_timeline",
            OTHER,
            "what a recovery would have replayed otherwise",
        ),
        ("external_pid_file", NOT_EMPTY, "the file of that name: the server overwrites it at its start"),
    ),
    *_risks(
        RiskClass.RUNS_CODE,
        (
            "archive_command archive_cleanup_command recovery_end_command restore_command ssl_passphrase_command"
            " basebackup_to_shell.command",
            NOT_EMPTY,
            "a shell command of the server's account",
        ),
        ("basebackup_to_shell.required_role", NEW, "it says who may run basebackup_to_shell.command"),
        ("ssl_passphrase_command_supports_reload", ON, "each reload runs ssl_passphrase_command"),
        (
            "session_preload_libraries local_preload_libraries",
            NOT_EMPTY,
            "libraries that each session loads, one of ours first; one that crashes ends every session of the server",
        ),
        (
            "archive_library shared_preload_libraries oauth_validator_libraries",
            NOT_EMPTY,
            "libraries that the server's processes load",
        ),
        ("output_plugin_libraries", OTHER, "libraries that roles with REPLICATION can load"),
        (
            "dynamic_library_path jit_provider extension_control_path extension_destdir",
            OTHER,
            "it says which libraries and scripts are loaded",
        ),
        (
            "plperl.on_init plperl.on_plperl_init plperl.on_plperlu_init pltcl.start_proc pltclu.start_proc plv8.start_proc",
            NOT_EMPTY,
            "sessions run it before their first function in that language",
        ),
        (
            "search_path",
            _OTHER_SCHEMAS,
            "names in statements and functions can mean those of another schema, or nothing",
            _TRIED,
        ),
        ("log_directory", OUTSIDE, "the server's account appends lines, with texts of clients, to files there"),
        ("log_filename", NO_LOG_NAME, "the server's account appends lines, with texts of clients, to that file"),
    ),
    *_risks(
        RiskClass.LOCKS_OUT,
        # Logins.
        (
            "port unix_socket_directories unix_socket_group unix_socket_permissions",
            NEW,
            "clients do not find the server, or may not",
        ),
        ("listen_addresses", EMPTY, "no client gets in over TCP/IP"),
        ("max_connections", below("20"), "sessions that find no place are refused"),
        ("superuser_reserved_connections", below("1"), "no superuser gets in once all connections are taken"),
        (
            "superuser_reserved_connections reserved_connections",
            above("20"),
            "so many places less for others; with as many as max_connections the server does not start",
        ),
        ("authentication_timeout", below("5s", "s"), "logins that take longer are refused"),
        ("pre_auth_delay post_auth_delay", above("0", "s"), "each login waits for so long"),
        (
            "auth_delay.milliseconds",
            above("1s", "ms"),
            "each failed login holds a connection for so long, until none is left",
        ),
        ("scram_iterations", above("100000"), "each login computes for so long, in clients too"),
        ("passwordcheck.min_password_length", above("64"), "no password can be set any more"),
        ("log_hostname", ON, "each login waits for a name server", _TRIED),
        ("ssl", OFF, "clients that ask for TLS are refused, the others send in clear"),
        ("ssl", when_new(ON), "without a certificate and its key the server does not start again"),
        (
            "ssl_ca_file ssl_cert_file ssl_ciphers ssl_crl_dir ssl_crl_file ssl_dh_params_file ssl_ecdh_curve ssl_groups"
            " ssl_key_file ssl_max_protocol_version ssl_min_protocol_version ssl_sni ssl_tls13_ciphers",
            OTHER,
            "clients that need another certificate, cipher or protocol are refused",
        ),
        ("db_user_namespace krb_caseins_users", ON, "names of roles mean other roles at login"),
        (
            "config_file data_directory hba_file hosts_file ident_file krb_server_keyfile stats_temp_directory",
            OTHER,
            "it decides who is allowed to log in, or where the server finds its files",
        ),
        ("role session_authorization", ANY, "sessions begin as another role, with its rights"),
        (
            "client_encoding",
            ANOTHER_ENCODING,
            "databases in an encoding without a conversion to it refuse every login",
            _TRIED,
        ),
        ("allow_alter_system", OFF, "ALTER SYSTEM is refused from then on, also to revert this"),
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
            "connections over a slow network, of standbys too, are cut again and again",
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
            "queries on a standby that are in the way of its recovery are cancelled at once",
            _TRIED,
        ),
        (
            "max_standby_archive_delay max_standby_streaming_delay",
            below("0", "ms"),
            "a standby's recovery waits for its queries without end",
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
            "transactions that others get in the way of fail, and have to be repeated by clients",
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
        ("plpgsql.extra_errors", OTHER, "functions with such constructs fail to be made", _TRIED),
        ("plperl.use_strict", ON, "functions that are not strict Perl fail", _TRIED),
        (
            "debug_parallel_query force_parallel_mode",
            one_of("on", "regress"),
            "statements fail whose functions are wrongly marked as parallel safe, and the others are slower",
            _TRIED,
        ),
        (
            "standard_conforming_strings",
            OFF,
            "backslashes in strings mean something else: statements fail or can be injected",
            _TRIED,
            _ANNOUNCED,
        ),
        (
            "backslash_quote",
            ON,
            "in some encodings strings can end where clients do not expect it: statements can be injected",
            _TRIED,
            _ANNOUNCED,
        ),
        ("max_stack_depth", below("1MB", "kB"), "statements that nest deeper fail", _TRIED),
        ("temp_file_limit", below("1GB", "kB", above=-1), "statements that sort more fail", _TRIED),
        ("max_locks_per_transaction", below("64"), "statements on many tables, and dumps, fail"),
        (
            "max_prepared_transactions",
            LOWER,
            "with more prepared transactions than that the server does not start",
        ),
        (
            "max_worker_processes",
            below("4"),
            "extensions, logical replication and parallel queries find no worker",
        ),
        ("old_snapshot_threshold", OTHER, "statements that run for longer fail"),
        # Replication and recovery.
        (
            "synchronous_standby_names",
            NOT_EMPTY,
            "each commit waits for these standbys, for ever where one is not connected",
            _TRIED,
        ),
        (
            "synchronized_standby_slots",
            NOT_EMPTY,
            "logical replication waits for these slots, for ever where one is not in use",
            _TRIED,
        ),
        (
            "recovery_min_apply_delay",
            above("0", "ms"),
            "a standby lags by so much; commits that wait for it to apply them hang",
            _TRIED,
        ),
        (
            "wal_retrieve_retry_interval",
            above("1min", "ms"),
            "a standby or a subscription that lost its connection waits for so long",
            _TRIED,
        ),
        ("primary_conninfo primary_slot_name", OTHER, "a standby follows another server, or none"),
        ("hot_standby", OFF, "a standby takes no connections"),
        (
            "max_wal_senders max_replication_slots max_active_replication_origins max_logical_replication_workers"
            " max_sync_workers_per_subscription",
            below("1"),
            "replication and base backups end",
        ),
        (
            "debug_logical_replication_streaming",
            one_of("immediate"),
            "each change of a transaction is sent or written out by itself",
            _TRIED,
        ),
        # Disk, memory and time.
        ("archive_command archive_library", when_new(EMPTY), f"WAL is not archived: {_FULL_DISK}"),
        (
            "archive_mode",
            when_new(one_of("on", "always")),
            f"WAL is kept until it is archived; where that fails, {_FULL_DISK}",
        ),
        (
            "archive_timeout",
            below("10s", "s", above=0),
            "a segment of 16 MB is archived so often, until that disk is full",
            _TRIED,
        ),
        ("wal_keep_size max_wal_size min_wal_size", above("256GB", "MB"), _FULL_DISK, _TRIED),
        (
            "wal_consistency_checking",
            NOT_EMPTY,
            "each change writes whole pages, and a standby that finds a difference ends",
            _TRIED,
        ),
        (
            "debug_print_parse debug_print_plan debug_print_raw_parse debug_print_rewritten",
            ON,
            "the log gets each statement as a tree, until its disk is full",
            _TRIED,
        ),
        (
            "log_min_messages",
            matching("debug", "debug1 to debug5"),
            "the log gets each step of the server, until its disk is full",
            _TRIED,
        ),
        ("jit_dump_bitcode", ON, "each compiled statement leaves files in the data directory", _TRIED),
        ("send_abort_for_crash send_abort_for_kill", ON, "processes that end leave core files"),
        ("remove_temp_files_after_crash", OFF, "temporary files stay after a crash, until the disk is full"),
        ("allow_in_place_tablespaces", ON, "tablespaces can fill the disk of the data directory"),
        ("work_mem", above("4GB", "kB"), _MEMORY, _TRIED),
        ("temp_buffers", above("4GB", "8kB"), _MEMORY, _TRIED),
        ("hash_mem_multiplier", above("100"), _MEMORY, _TRIED),
        (
            "geqo_pool_size geqo_generations",
            above("10000"),
            "every wide join is planned for minutes, or fails for want of memory",
            _TRIED,
        ),
        ("maintenance_work_mem autovacuum_work_mem", above("64GB", "kB"), _MEMORY, _TRIED),
        (
            "autovacuum_freeze_max_age autovacuum_multixact_freeze_max_age vacuum_failsafe_age"
            " vacuum_multixact_failsafe_age",
            above("1600000000"),
            "vacuum begins too late, and near wraparound the server stops writing",
        ),
        ("autovacuum_naptime", above("1h", "s"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_scale_factor", above("1"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_threshold", above("10000000"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_cost_delay", above("20ms", "ms"), _BLOAT, _TRIED),
        ("autovacuum_vacuum_cost_limit vacuum_cost_limit", below("50", above=0), _BLOAT, _TRIED),
        ("vacuum_cost_page_dirty vacuum_cost_page_hit vacuum_cost_page_miss", above("200"), _BLOAT, _TRIED),
        ("vacuum_defer_cleanup_age", above("0"), "dead rows stay for so many transactions", _TRIED),
        (
            "deadlock_timeout",
            above("1min", "ms"),
            "sessions that wait for each other hang for so long",
            _TRIED,
        ),
        (
            "from_collapse_limit join_collapse_limit geqo_threshold",
            above("20"),
            "the time and memory to plan a statement can grow without end",
            _TRIED,
        ),
        (
            "debug_discard_caches",
            above("0"),
            "the server becomes some hundred times slower",
            _TRIED,
            _ANNOUNCED,
        ),
        ("ignore_system_indexes", ON, "each look into the catalogs reads them whole", _TRIED),
        ("debug_io_direct", NOT_EMPTY, "reads and writes go past the kernel's cache, and become slow"),
        ("restart_after_crash", OFF, "after the crash of one session the server stays down"),
    ),
)
RISKS: Final[Mapping[str, tuple[ValueRisk, ...]]] = MappingProxyType(
    {row.name: tuple(risk for risk in _TABLE if risk.name == row.name) for row in _TABLE}
)
"""Setting → its rows; the first that applies to a value counts."""

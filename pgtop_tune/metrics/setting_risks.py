"""The class of every setting of PostgreSQL 14 to 19, and the values that are not safe: the one table of the fence.

A setting is safe at every value, or has rows here: a class, the values that the class is about, and a reason. A name
that stands in neither list, of a newer major or of an extension, is unknown, and asked for.

Source: PostgreSQL documentation, "Server Configuration" of each major, "Reliability and the Write-Ahead Log",
"Developer Options"; guc_tables.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.parameter_values import parse, parse_bool
from pgtop_tune.model.postgres import Parameter


class RiskClass(StrEnum):
    """What a value can do that tuning must not do unasked."""

    LOSES_ON_CRASH = "loses data on a crash"
    LOSES_AT_ONCE = "loses data at once"
    RUNS_CODE = "runs code"
    LOCKS_OUT = "can lock out or hang"
    UNKNOWN = "unknown"


LOSSES: Final = frozenset({RiskClass.LOSES_ON_CRASH, RiskClass.LOSES_AT_ONCE})

_VERBS: Final = {
    RiskClass.LOSES_ON_CRASH: "can lose",
    RiskClass.LOSES_AT_ONCE: "can lose",
    RiskClass.RUNS_CODE: "runs code",
    RiskClass.LOCKS_OUT: "can lock out or hang",
    RiskClass.UNKNOWN: "is not known to this version",
}

_Applies = Callable[[str, "Parameter | None"], bool]
"""Whether a row is about a value: the value as pg_settings would have it, and the parameter where it is known."""


class ValueRisk(Struct, frozen=True, kw_only=True):
    """A risk of some values of one setting.

    Attributes:
        name: The setting.
        kind: Its class.
        values: The values, for people: "off", "any other value than the default".
        reason: One clause: of a loss, what can be lost; of the others, why.
        applies: Says whether a value is one of them.
        tried_with_deadline: Whether a deadline is enough to try it: the value ends by itself, the revert needs nothing
            that the value takes away, and no consistency is lost meanwhile.
        announced: Whether the screen warns of it while it is in force; else only a change to it is asked for.
    """

    name: str
    kind: RiskClass
    values: str
    reason: str
    applies: _Applies
    tried_with_deadline: bool = False
    announced: bool = True

    @property
    def loses_data(self) -> bool:
        """Whether it is one of the two classes of losses."""
        return self.kind in LOSSES

    def locked(self, *, ends: bool) -> bool:
        """Return whether the operator has to unlock the value by its name.

        Args:
            ends: Whether the value goes by itself: at a deadline unless confirmed, or with the sessions of a load.
        """
        return not (ends and self.tried_with_deadline)

    @property
    def verb(self) -> str:
        """The class as a verb: "can lose", "runs code"."""
        return _VERBS[self.kind]

    @property
    def words(self) -> str:
        """The verb and the reason: "can lose acknowledged commits", "runs code: a command of the server's account"."""
        return f"{self.verb}{'' if self.loses_data else ':'} {self.reason}"


def risk_of(name: str, value: str | None, parameter: Parameter | None = None) -> ValueRisk | None:
    """Return the risk of a value, None where it is safe.

    Args:
        name: Setting, in any case.
        value: As typed or as pg_settings has it; None resets, which is never fenced.
        parameter: The row of pg_settings; without it the server's own default and unit are not known.
    """
    if value is None:
        return None
    key = name.lower()
    rows = RISKS.get(key)
    if rows is None:
        return None if key in SAFE or key.partition(".")[0] in SAFE_EXTENSIONS else unknown_setting(name)
    return next((row for row in rows if row.applies(value.strip(), parameter)), None)


def unknown_setting(name: str) -> ValueRisk:
    """Return the risk of a setting that this table does not have."""
    return ValueRisk(
        name=name,
        kind=RiskClass.UNKNOWN,
        values="any value",
        reason="its risk cannot be said",
        applies=lambda value, parameter: True,
        announced=False,
    )


def _plain(value: str) -> str:
    """Return on or off for what the server takes as such, for enums too (guc_tables.c); other values as they are."""
    try:
        return parse_bool(value)
    except UsageProblem:
        return value


def _one_of(*values: str) -> _Applies:
    return lambda value, parameter: _plain(value).lower() in values


def _other_than_default(value: str, parameter: Parameter | None) -> bool:
    if parameter is None:
        return True
    if parameter.vartype in ("integer", "real"):
        return _number(value, parameter) != _number(parameter.boot_val, parameter)
    return _plain(value) != _plain(parameter.boot_val)


def _not_empty(value: str, parameter: Parameter | None) -> bool:
    return value not in ("", "''", '""')


def _empty(value: str, parameter: Parameter | None) -> bool:
    return not _not_empty(value, parameter)


def _below(limit: float, unit: str = "", *, above: float = float("-inf")) -> _Applies:
    """Return a condition for numbers: `above` < value < `limit`, both in `unit`, which is that of pg_settings."""

    def applies(value: str, parameter: Parameter | None) -> bool:
        number = _number(value, parameter, unit)
        return number is None or above < number < limit

    return applies


def _above(limit: float, unit: str = "") -> _Applies:
    def applies(value: str, parameter: Parameter | None) -> bool:
        number = _number(value, parameter, unit)
        return number is None or number > limit

    return applies


def _number(value: str, parameter: Parameter | None, unit: str = "") -> float | None:
    try:
        return parse(value, unit if parameter is None else parameter.unit, integer=False)
    except UsageProblem:
        return None


def _does_nothing(value: str, parameter: Parameter | None) -> bool:
    """Whether a command succeeds without doing anything: `true`, `/bin/true`, `:`, `exit 0`, `cd .`, `REM`."""
    words = value.split()
    return not words or words[0].rpartition("/")[2] in ("true", ":", "exit", "cd", "echo", "REM", "rem", "#")


def _absolute(value: str, parameter: Parameter | None) -> bool:
    return value.startswith("/")


def _no_log_name(value: str, parameter: Parameter | None) -> bool:
    return "/" in value or not value.endswith((".log", ".csv", ".json"))


def _another_encoding(value: str, parameter: Parameter | None) -> bool:
    return re.sub("[^a-z0-9]", "", value.lower()) not in ("utf8", "unicode", "sqlascii")


_ON: Final = _one_of("on")
_OFF: Final = _one_of("off")
_OTHER_WORDS: Final = "any other value than the default"
_NOT_EMPTY_WORDS: Final = "any that is not empty"


def _rows(
    kind: RiskClass,
    names: str,
    applies: _Applies,
    values: str,
    reason: str,
    *,
    tried_with_deadline: bool = False,
    announced: bool = True,
) -> Iterable[ValueRisk]:
    """Return a row for each of some names, which have class, condition and reason in common."""
    for name in names.split():
        yield ValueRisk(
            name=name,
            kind=kind,
            values=values,
            reason=reason,
            applies=applies,
            tried_with_deadline=tried_with_deadline,
            announced=announced,
        )


_CORRUPTION: Final = "after a crash of the machine: pages cannot be read or silently hold old contents"
_CRASH, _LOSS, _CODE, _LOCK = (
    RiskClass.LOSES_ON_CRASH,
    RiskClass.LOSES_AT_ONCE,
    RiskClass.RUNS_CODE,
    RiskClass.LOCKS_OUT,
)

_ALL: Final[tuple[ValueRisk, ...]] = (
    # Lost on a crash.
    *_rows(_CRASH, "fsync", _OFF, "off", f"the whole cluster, {_CORRUPTION}"),
    *_rows(_CRASH, "full_page_writes", _OFF, "off", f"tables and indexes, {_CORRUPTION}"),
    *_rows(
        _CRASH,
        "wal_sync_method",
        _other_than_default,
        "any other method",
        "acknowledged commits, if that method does not flush the drive's cache",
    ),
    *_rows(
        _CRASH,
        "synchronous_commit",
        _OFF,
        "off",
        "acknowledged commits of the last 3 × wal_writer_delay (600 ms by default); the data stay consistent",
        tried_with_deadline=True,
    ),
    *_rows(
        _CRASH,
        "synchronous_commit",
        _one_of("local"),
        "local",
        "acknowledged commits that no standby has yet, if this server is lost and a standby takes over",
        tried_with_deadline=True,
    ),
    *_rows(
        _CRASH,
        "synchronous_standby_names",
        _empty,
        "empty",
        "acknowledged commits that no standby has yet, if this server is lost and a standby takes over",
        tried_with_deadline=True,
        announced=False,
    ),
    *_rows(
        _CRASH,
        "data_sync_retry",
        _ON,
        "on",
        "pages whose write failed once: the kernel may have dropped them before the second fsync",
    ),
    *_rows(
        _CRASH,
        "ignore_invalid_pages",
        _ON,
        "on",
        "pages that a recovery cannot find: it goes on without them",
    ),
    *_rows(
        _CRASH,
        "recovery_init_sync_method",
        _one_of("syncfs"),
        "syncfs",
        "what could not be written before a crash, where the kernel does not tell of it (Linux before 5.8)",
        announced=False,
    ),
    # Lost at once.
    *_rows(
        _LOSS,
        "wal_level",
        _one_of("minimal"),
        "minimal",
        "point-in-time recovery and every standby: none can continue from here",
    ),
    *_rows(
        _LOSS, "archive_mode", _OFF, "off", "point-in-time recovery: WAL is not archived from here on", announced=False
    ),
    *_rows(
        _LOSS,
        "archive_command",
        lambda value, parameter: _not_empty(value, parameter) and _does_nothing(value, parameter),
        "a command that does nothing",
        "the WAL archive: segments are recycled without a copy, and backups cannot be recovered past here",
    ),
    *_rows(
        _LOSS,
        "autovacuum",
        _OFF,
        "off",
        "nothing at first; dead rows pile up, and near wraparound the server stops writing",
    ),
    *_rows(_LOSS, "track_counts", _OFF, "off", "autovacuum does not run; as autovacuum=off"),
    *_rows(_LOSS, "zero_damaged_pages", _ON, "on", "every row of a page whose header is damaged, for good"),
    *_rows(_LOSS, "ignore_checksum_failure", _ON, "on", "the means to recognise damaged data; damage spreads"),
    *_rows(_LOSS, "allow_system_table_mods", _ON, "on", "catalogs: nothing keeps a statement from breaking them"),
    *_rows(
        _LOSS,
        "session_replication_role",
        _one_of("replica"),
        "replica",
        "consistency: foreign keys, triggers and rules do not act on what is written",
    ),
    *_rows(_LOSS, "event_triggers", _OFF, "off", "what event triggers refuse or record"),
    *_rows(
        _LOSS,
        "max_slot_wal_keep_size",
        _below(1024, "MB", above=-1),
        "below 1GB",
        "replication slots that lag by more: their standbys and subscribers have to be made anew",
        announced=False,
    ),
    *_rows(
        _LOSS,
        "idle_replication_slot_timeout",
        _other_than_default,
        _OTHER_WORDS,
        "replication slots that are idle for longer: their standbys and subscribers have to be made anew",
        announced=False,
    ),
    *_rows(
        _LOSS,
        "gin_fuzzy_search_limit",
        _above(0),
        "above 0",
        "rows of searches through GIN indexes: a random part is left out",
    ),
    *_rows(
        _LOSS,
        "transform_null_equals",
        _ON,
        "on",
        "the meaning of `= NULL`: statements can change other rows than meant",
    ),
    *_rows(_LOSS, "array_nulls", _OFF, "off", "NULL in arrays that are read from text: it becomes the word"),
    *_rows(
        _LOSS,
        "extra_float_digits",
        _below(0),
        "below 0",
        "digits of floating-point numbers, in dumps too",
    ),
    *_rows(
        _LOSS,
        "lo_compat_privileges",
        _ON,
        "on",
        "the protection of large objects: every role can write all of them",
    ),
    *_rows(
        _LOSS,
        "promote_trigger_file",
        _not_empty,
        _NOT_EMPTY_WORDS,
        "the standby: it becomes a primary when that file is there",
        announced=False,
    ),
    *_rows(
        _LOSS,
        "recovery_target recovery_target_lsn recovery_target_name recovery_target_time recovery_target_xid",
        _not_empty,
        _NOT_EMPTY_WORDS,
        "what comes after that point: a recovery ends there",
        announced=False,
    ),
    *_rows(
        _LOSS,
        "recovery_target_action recovery_target_inclusive recovery_target_timeline",
        _other_than_default,
        _OTHER_WORDS,
        "what a recovery would have replayed otherwise",
        announced=False,
    ),
    *_rows(
        _LOSS,
        "external_pid_file",
        _not_empty,
        _NOT_EMPTY_WORDS,
        "the file of that name: the server overwrites it at its start",
        announced=False,
    ),
    # Run as the server's account, or in sessions of every role.
    *_rows(
        _LOCK,
        "archive_command",
        _empty,
        "empty",
        "no WAL is archived, and it stays until the disk is full",
        announced=False,
    ),
    *_rows(
        _CODE,
        "archive_command archive_cleanup_command recovery_end_command restore_command ssl_passphrase_command",
        _not_empty,
        _NOT_EMPTY_WORDS,
        "a shell command of the server's account",
        announced=False,
    ),
    *_rows(
        _CODE,
        "ssl_passphrase_command_supports_reload",
        _ON,
        "on",
        "each reload runs ssl_passphrase_command",
        announced=False,
    ),
    *_rows(
        _CODE,
        "archive_library shared_preload_libraries session_preload_libraries local_preload_libraries"
        " oauth_validator_libraries",
        _not_empty,
        _NOT_EMPTY_WORDS,
        "libraries that the server's processes load",
        announced=False,
    ),
    *_rows(
        _CODE,
        "output_plugin_libraries",
        _other_than_default,
        _OTHER_WORDS,
        "libraries that roles with REPLICATION can load",
        announced=False,
    ),
    *_rows(
        _CODE,
        "dynamic_library_path jit_provider extension_control_path extension_destdir",
        _other_than_default,
        _OTHER_WORDS,
        "it says which libraries and scripts are loaded",
        announced=False,
    ),
    *_rows(
        _CODE,
        "log_directory",
        _absolute,
        "an absolute path",
        "the server's account appends lines, with texts of clients, to files there",
        announced=False,
    ),
    *_rows(
        _CODE,
        "log_filename",
        _no_log_name,
        "a name that does not end in .log",
        "the server's account appends lines, with texts of clients, to that file",
        announced=False,
    ),
    # Nobody gets in, or what is begun does not end.
    *_rows(
        _LOCK,
        "allow_alter_system",
        _OFF,
        "off",
        "ALTER SYSTEM is refused from then on, also to revert this",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "synchronous_standby_names",
        _not_empty,
        _NOT_EMPTY_WORDS,
        "each commit waits for these standbys, for ever where one is not connected",
        tried_with_deadline=True,
        announced=False,
    ),
    *_rows(
        _LOCK,
        "synchronized_standby_slots",
        _not_empty,
        _NOT_EMPTY_WORDS,
        "logical replication waits for these slots, for ever where one is not in use",
        tried_with_deadline=True,
        announced=False,
    ),
    *_rows(
        _LOCK,
        "recovery_min_apply_delay",
        _above(0, "ms"),
        "above 0",
        "a standby lags by so much; commits that wait for it to apply them hang",
        tried_with_deadline=True,
        announced=False,
    ),
    *_rows(
        _LOCK,
        "primary_conninfo primary_slot_name",
        _other_than_default,
        _OTHER_WORDS,
        "a standby follows another server, or none",
        announced=False,
    ),
    *_rows(_LOCK, "hot_standby", _OFF, "off", "a standby takes no connections", announced=False),
    *_rows(
        _LOCK,
        "max_wal_senders max_replication_slots max_active_replication_origins max_logical_replication_workers",
        _below(1),
        "0",
        "replication and base backups end",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "config_file data_directory hba_file hosts_file ident_file krb_server_keyfile stats_temp_directory",
        _other_than_default,
        _OTHER_WORDS,
        "it decides who is allowed to log in, or where the server finds its files",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "ssl",
        _OFF,
        "off",
        "clients that ask for TLS are refused, the others send in clear",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "ssl_ca_file ssl_cert_file ssl_ciphers ssl_crl_dir ssl_crl_file ssl_dh_params_file ssl_ecdh_curve ssl_groups"
        " ssl_key_file ssl_max_protocol_version ssl_min_protocol_version ssl_sni ssl_tls13_ciphers",
        _other_than_default,
        _OTHER_WORDS,
        "clients that need another certificate, cipher or protocol are refused",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "db_user_namespace krb_caseins_users",
        _ON,
        "on",
        "names of roles mean other roles at login",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "max_connections",
        _below(20),
        "below 20",
        "sessions that find no place are refused",
        announced=False,
    ),
    *_rows(_LOCK, "listen_addresses", _one_of(""), "''", "no client gets in over TCP/IP", announced=False),
    *_rows(_LOCK, "unix_socket_permissions", _one_of("0", "00", "000", "0000"), "0", "no client gets in by a socket"),
    *_rows(
        _LOCK,
        "superuser_reserved_connections",
        _below(1),
        "0",
        "no superuser gets in once all connections are taken",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "authentication_timeout",
        _below(5, "s"),
        "below 5s",
        "logins that take longer are refused",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "pre_auth_delay post_auth_delay",
        _above(0, "s"),
        "above 0",
        "each login waits for so long",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "client_encoding",
        _another_encoding,
        "any other than UTF8",
        "databases in an encoding without a conversion to it refuse every login",
        tried_with_deadline=True,
        announced=False,
    ),
    *_rows(
        _LOCK,
        "default_transaction_read_only",
        _ON,
        "on",
        "every transaction that writes fails",
        tried_with_deadline=True,
    ),
    *_rows(
        _LOCK,
        "statement_timeout transaction_timeout idle_session_timeout",
        _below(1000, "ms", above=0),
        "below 1s",
        "sessions and statements that take longer are ended, those of backups and of pools too",
        tried_with_deadline=True,
    ),
    *_rows(
        _LOCK,
        "exit_on_error",
        _ON,
        "on",
        "each error ends its session",
        tried_with_deadline=True,
    ),
    *_rows(
        _LOCK,
        "row_security",
        _OFF,
        "off",
        "statements on tables with row security fail",
        tried_with_deadline=True,
    ),
    *_rows(
        _LOCK,
        "standard_conforming_strings",
        _OFF,
        "off",
        "backslashes in strings mean something else: statements fail or can be injected",
        tried_with_deadline=True,
    ),
    *_rows(
        _LOCK,
        "backslash_quote",
        _ON,
        "on",
        "in some encodings strings can end where clients do not expect it: statements can be injected",
        tried_with_deadline=True,
    ),
    *_rows(
        _LOCK,
        "debug_discard_caches",
        _above(0),
        "above 0",
        "the server becomes some hundred times slower",
        tried_with_deadline=True,
    ),
    *_rows(
        _LOCK,
        "restart_after_crash",
        _OFF,
        "off",
        "after the crash of one session the server stays down",
        announced=False,
    ),
    *_rows(
        _LOCK,
        "old_snapshot_threshold",
        _other_than_default,
        _OTHER_WORDS,
        "statements that run for longer fail",
        announced=False,
    ),
)

RISKS: Final[Mapping[str, tuple[ValueRisk, ...]]] = MappingProxyType(
    {row.name: tuple(other for other in _ALL if other.name == row.name) for row in _ALL}
)
"""Setting → its rows; the first that applies to a value counts."""

SAFE: Final = frozenset(
    [
        "port",
        "search_path",
        "unix_socket_directories",
        "unix_socket_group",
        "allow_in_place_tablespaces",
        "application_name",
        "archive_timeout",
        "autovacuum_analyze_scale_factor",
        "autovacuum_analyze_score_weight",
        "autovacuum_analyze_threshold",
        "autovacuum_freeze_max_age",
        "autovacuum_freeze_score_weight",
        "autovacuum_max_parallel_workers",
        "autovacuum_max_workers",
        "autovacuum_multixact_freeze_max_age",
        "autovacuum_multixact_freeze_score_weight",
        "autovacuum_naptime",
        "autovacuum_vacuum_cost_delay",
        "autovacuum_vacuum_cost_limit",
        "autovacuum_vacuum_insert_scale_factor",
        "autovacuum_vacuum_insert_score_weight",
        "autovacuum_vacuum_insert_threshold",
        "autovacuum_vacuum_max_threshold",
        "autovacuum_vacuum_scale_factor",
        "autovacuum_vacuum_score_weight",
        "autovacuum_vacuum_threshold",
        "autovacuum_work_mem",
        "autovacuum_worker_slots",
        "backend_flush_after",
        "backtrace_functions",
        "bgwriter_delay",
        "bgwriter_flush_after",
        "bgwriter_lru_maxpages",
        "bgwriter_lru_multiplier",
        "bonjour",
        "bonjour_name",
        "bytea_output",
        "check_function_bodies",
        "checkpoint_completion_target",
        "checkpoint_flush_after",
        "checkpoint_timeout",
        "checkpoint_warning",
        "client_connection_check_interval",
        "client_min_messages",
        "cluster_name",
        "commit_delay",
        "commit_siblings",
        "commit_timestamp_buffers",
        "compute_query_id",
        "constraint_exclusion",
        "cpu_index_tuple_cost",
        "cpu_operator_cost",
        "cpu_tuple_cost",
        "createrole_self_grant",
        "cursor_tuple_fraction",
        "datestyle",
        "deadlock_timeout",
        "debug_io_direct",
        "debug_logical_replication_streaming",
        "debug_parallel_query",
        "debug_pretty_print",
        "debug_print_parse",
        "debug_print_plan",
        "debug_print_raw_parse",
        "debug_print_rewritten",
        "default_statistics_target",
        "default_table_access_method",
        "default_tablespace",
        "default_text_search_config",
        "default_toast_compression",
        "default_transaction_deferrable",
        "default_transaction_isolation",
        "dynamic_shared_memory_type",
        "effective_cache_size",
        "effective_io_concurrency",
        "enable_async_append",
        "enable_bitmapscan",
        "enable_distinct_reordering",
        "enable_eager_aggregate",
        "enable_gathermerge",
        "enable_group_by_reordering",
        "enable_hashagg",
        "enable_hashjoin",
        "enable_incremental_sort",
        "enable_indexonlyscan",
        "enable_indexscan",
        "enable_material",
        "enable_memoize",
        "enable_mergejoin",
        "enable_nestloop",
        "enable_parallel_append",
        "enable_parallel_hash",
        "enable_partition_pruning",
        "enable_partitionwise_aggregate",
        "enable_partitionwise_join",
        "enable_presorted_aggregate",
        "enable_self_join_elimination",
        "enable_seqscan",
        "enable_sort",
        "enable_tidscan",
        "escape_string_warning",
        "event_source",
        "file_copy_method",
        "file_extend_method",
        "force_parallel_mode",
        "from_collapse_limit",
        "geqo",
        "geqo_effort",
        "geqo_generations",
        "geqo_pool_size",
        "geqo_seed",
        "geqo_selection_bias",
        "geqo_threshold",
        "gin_pending_list_limit",
        "gss_accept_delegation",
        "hash_mem_multiplier",
        "hot_standby_feedback",
        "huge_page_size",
        "huge_pages",
        "icu_validation_level",
        "idle_in_transaction_session_timeout",
        "ignore_system_indexes",
        "intervalstyle",
        "io_combine_limit",
        "io_max_combine_limit",
        "io_max_concurrency",
        "io_max_workers",
        "io_method",
        "io_min_workers",
        "io_worker_idle_timeout",
        "io_worker_launch_interval",
        "io_workers",
        "jit",
        "jit_above_cost",
        "jit_debugging_support",
        "jit_dump_bitcode",
        "jit_expressions",
        "jit_inline_above_cost",
        "jit_optimize_above_cost",
        "jit_profiling_support",
        "jit_tuple_deforming",
        "join_collapse_limit",
        "lc_messages",
        "lc_monetary",
        "lc_numeric",
        "lc_time",
        "lock_timeout",
        "log_autoanalyze_min_duration",
        "log_autovacuum_min_duration",
        "log_checkpoints",
        "log_connections",
        "log_destination",
        "log_disconnections",
        "log_duration",
        "log_error_verbosity",
        "log_executor_stats",
        "log_file_mode",
        "log_hostname",
        "log_line_prefix",
        "log_lock_failures",
        "log_lock_waits",
        "log_min_duration_sample",
        "log_min_duration_statement",
        "log_min_error_statement",
        "log_min_messages",
        "log_parameter_max_length",
        "log_parameter_max_length_on_error",
        "log_parser_stats",
        "log_planner_stats",
        "log_recovery_conflict_waits",
        "log_replication_commands",
        "log_rotation_age",
        "log_rotation_size",
        "log_startup_progress_interval",
        "log_statement",
        "log_statement_sample_rate",
        "log_statement_stats",
        "log_temp_files",
        "log_timezone",
        "log_transaction_sample_rate",
        "log_truncate_on_rotation",
        "logging_collector",
        "logical_decoding_work_mem",
        "maintenance_io_concurrency",
        "maintenance_work_mem",
        "max_files_per_process",
        "max_locks_per_transaction",
        "max_notify_queue_pages",
        "max_parallel_apply_workers_per_subscription",
        "max_parallel_maintenance_workers",
        "max_parallel_workers",
        "max_parallel_workers_per_gather",
        "max_pred_locks_per_page",
        "max_pred_locks_per_relation",
        "max_pred_locks_per_transaction",
        "max_prepared_transactions",
        "max_repack_replication_slots",
        "max_stack_depth",
        "max_standby_archive_delay",
        "max_standby_streaming_delay",
        "max_sync_workers_per_subscription",
        "max_wal_size",
        "max_worker_processes",
        "md5_password_warnings",
        "min_dynamic_shared_memory",
        "min_eager_agg_group_size",
        "min_parallel_index_scan_size",
        "min_parallel_table_scan_size",
        "min_wal_size",
        "multixact_member_buffers",
        "multixact_offset_buffers",
        "notify_buffers",
        "parallel_leader_participation",
        "parallel_setup_cost",
        "parallel_tuple_cost",
        "password_encryption",
        "password_expiration_warning_threshold",
        "plan_cache_mode",
        "quote_all_identifiers",
        "random_page_cost",
        "recovery_prefetch",
        "recursive_worktable_factor",
        "remove_temp_files_after_crash",
        "reserved_connections",
        "restrict_nonsystem_relation_kind",
        "scram_iterations",
        "send_abort_for_crash",
        "send_abort_for_kill",
        "seq_page_cost",
        "serializable_buffers",
        "shared_buffers",
        "shared_memory_type",
        "ssl_prefer_server_ciphers",
        "stats_fetch_consistency",
        "subtransaction_buffers",
        "summarize_wal",
        "sync_replication_slots",
        "synchronize_seqscans",
        "syslog_facility",
        "syslog_ident",
        "syslog_sequence_numbers",
        "syslog_split_messages",
        "tcp_keepalives_count",
        "tcp_keepalives_idle",
        "tcp_keepalives_interval",
        "tcp_user_timeout",
        "temp_buffers",
        "temp_file_limit",
        "temp_tablespaces",
        "timezone",
        "timezone_abbreviations",
        "timing_clock_source",
        "trace_connection_negotiation",
        "trace_notify",
        "trace_recovery_messages",
        "trace_sort",
        "track_activities",
        "track_activity_query_size",
        "track_commit_timestamp",
        "track_cost_delay_timing",
        "track_functions",
        "track_io_timing",
        "track_wal_io_timing",
        "transaction_buffers",
        "transaction_deferrable",
        "transaction_isolation",
        "transaction_read_only",
        "update_process_title",
        "vacuum_buffer_usage_limit",
        "vacuum_cost_delay",
        "vacuum_cost_limit",
        "vacuum_cost_page_dirty",
        "vacuum_cost_page_hit",
        "vacuum_cost_page_miss",
        "vacuum_defer_cleanup_age",
        "vacuum_failsafe_age",
        "vacuum_freeze_min_age",
        "vacuum_freeze_table_age",
        "vacuum_max_eager_freeze_failure_rate",
        "vacuum_multixact_failsafe_age",
        "vacuum_multixact_freeze_min_age",
        "vacuum_multixact_freeze_table_age",
        "vacuum_truncate",
        "wal_buffers",
        "wal_compression",
        "wal_consistency_checking",
        "wal_decode_buffer_size",
        "wal_init_zero",
        "wal_keep_size",
        "wal_log_hints",
        "wal_receiver_create_temp_slot",
        "wal_receiver_status_interval",
        "wal_receiver_timeout",
        "wal_recycle",
        "wal_retrieve_retry_interval",
        "wal_sender_shutdown_timeout",
        "wal_sender_timeout",
        "wal_skip_threshold",
        "wal_summary_keep_time",
        "wal_writer_delay",
        "wal_writer_flush_after",
        "work_mem",
        "xmlbinary",
        "xmloption",
    ]
)
"""Settings that are safe at every value, in lower case; an extension's have their prefix in SAFE_EXTENSIONS."""

SAFE_EXTENSIONS: Final = frozenset(
    [
        "auto_explain",
        "pg_buffercache",
        "pg_prewarm",
        "pg_qualstats",
        "pg_stat_kcache",
        "pg_stat_statements",
        "pg_trgm",
        "pg_wait_sampling",
        "plpgsql",
    ]
)
"""Prefixes of extensions whose settings are safe at every value: none names a program, a file or a library."""

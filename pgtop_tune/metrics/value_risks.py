"""Risks of values of settings: classes, conditions on values, and the settings that are safe at every value."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.model.parameter_values import parse, parse_bool
from pgtop_tune.model.postgres import Parameter

_NAMES: Final = """
    application_name autovacuum_analyze_scale_factor autovacuum_analyze_score_weight autovacuum_analyze_threshold
    autovacuum_freeze_score_weight autovacuum_max_parallel_workers autovacuum_max_workers
    autovacuum_multixact_freeze_score_weight autovacuum_vacuum_insert_scale_factor autovacuum_vacuum_insert_score_weight
    autovacuum_vacuum_insert_threshold autovacuum_vacuum_max_threshold autovacuum_vacuum_score_weight
    autovacuum_worker_slots backend_flush_after backtrace_functions bgwriter_delay bgwriter_flush_after
    bgwriter_lru_maxpages bgwriter_lru_multiplier bonjour bonjour_name bytea_output checkpoint_completion_target
    checkpoint_flush_after checkpoint_timeout checkpoint_warning client_connection_check_interval client_min_messages
    cluster_name commit_delay commit_siblings commit_timestamp_buffers compute_query_id constraint_exclusion
    cpu_index_tuple_cost cpu_operator_cost cpu_tuple_cost createrole_self_grant cursor_tuple_fraction debug_pretty_print
    default_statistics_target default_table_access_method default_tablespace default_text_search_config
    default_toast_compression default_transaction_deferrable dynamic_shared_memory_type effective_cache_size
    effective_io_concurrency enable_async_append enable_bitmapscan enable_distinct_reordering enable_eager_aggregate
    enable_gathermerge enable_group_by_reordering enable_hashagg enable_hashjoin enable_incremental_sort
    enable_indexonlyscan enable_indexscan enable_material enable_memoize enable_mergejoin enable_nestloop
    enable_parallel_append enable_parallel_hash enable_partition_pruning enable_partitionwise_aggregate
    enable_partitionwise_join enable_presorted_aggregate enable_self_join_elimination enable_seqscan enable_sort
    enable_tidscan escape_string_warning event_source file_copy_method file_extend_method geqo geqo_effort
    geqo_seed geqo_selection_bias gin_pending_list_limit
    hot_standby_feedback huge_page_size huge_pages icu_validation_level io_combine_limit io_max_combine_limit
    io_max_concurrency io_max_workers io_method io_min_workers io_worker_idle_timeout io_worker_launch_interval
    io_workers jit jit_above_cost jit_debugging_support jit_expressions jit_inline_above_cost jit_optimize_above_cost
    jit_profiling_support jit_tuple_deforming lc_messages lc_time log_autoanalyze_min_duration
    log_autovacuum_min_duration log_checkpoints log_connections log_disconnections log_duration log_error_verbosity
    log_executor_stats log_line_prefix log_lock_failures log_lock_waits log_min_duration_sample
    log_min_duration_statement log_min_error_statement log_parameter_max_length log_parameter_max_length_on_error
    log_parser_stats log_planner_stats log_recovery_conflict_waits log_replication_commands log_rotation_age
    log_rotation_size log_startup_progress_interval log_statement log_statement_sample_rate log_statement_stats
    log_temp_files log_timezone log_transaction_sample_rate logical_decoding_work_mem maintenance_io_concurrency
    max_files_per_process max_notify_queue_pages max_parallel_apply_workers_per_subscription
    max_parallel_maintenance_workers max_parallel_workers max_parallel_workers_per_gather max_pred_locks_per_page
    max_pred_locks_per_relation max_pred_locks_per_transaction max_repack_replication_slots md5_password_warnings
    min_dynamic_shared_memory min_eager_agg_group_size min_parallel_index_scan_size min_parallel_table_scan_size
    multixact_member_buffers multixact_offset_buffers notify_buffers parallel_leader_participation parallel_setup_cost
    parallel_tuple_cost password_expiration_warning_threshold plan_cache_mode plpgsql.extra_warnings
    plpgsql.print_strict_params postgres_fdw.application_name quote_all_identifiers random_page_cost recovery_prefetch
    recursive_worktable_factor sepgsql.debug_audit seq_page_cost serializable_buffers shared_buffers shared_memory_type
    ssl_prefer_server_ciphers stats_fetch_consistency subtransaction_buffers synchronize_seqscans syslog_facility
    syslog_ident syslog_sequence_numbers syslog_split_messages temp_tablespaces timing_clock_source
    trace_connection_negotiation trace_notify trace_recovery_messages trace_sort track_activities
    track_activity_query_size track_cost_delay_timing track_functions track_io_timing track_wal_io_timing
    transaction_buffers transaction_deferrable update_process_title vacuum_buffer_usage_limit vacuum_cost_delay
    vacuum_freeze_min_age vacuum_freeze_table_age vacuum_max_eager_freeze_failure_rate vacuum_multixact_freeze_min_age
    vacuum_multixact_freeze_table_age vacuum_truncate wal_buffers wal_compression wal_decode_buffer_size wal_init_zero
    wal_log_hints wal_receiver_create_temp_slot wal_receiver_status_interval wal_recycle wal_skip_threshold
    wal_writer_delay wal_writer_flush_after xmlbinary xmloption
"""
SAFE: Final = frozenset(_NAMES.split())
"""Settings of PostgreSQL 14 to 19, and of its contrib modules, that are safe at every value, in lower case.

A value that is only slow, costs disk space for a log, or is refused by the server itself, is safe. The other settings are
rows of `metrics/setting_risks`, or have their prefix in SAFE_EXTENSIONS."""

_PREFIXES: Final = """
    auto_explain hnsw ivfflat pg_buffercache pg_plan_advice pg_prewarm pg_qualstats pg_stash_advice pg_stat_kcache
    pg_stat_statements pg_trgm pg_wait_sampling
"""
SAFE_EXTENSIONS: Final = frozenset(_PREFIXES.split())
"""Prefixes of extensions without a setting that names a program, a file or a library, or disturbs other sessions."""


class RiskClass(StrEnum):
    """Harm that a value can do, which tuning must not do without the operator's consent."""

    LOSES_ON_CRASH = "loses data on a crash"
    LOSES_AT_ONCE = "loses data at once"
    RUNS_CODE = "runs code"
    LOCKS_OUT = "can lock out or hang"
    UNKNOWN = "unknown"


_VERBS: Final = {
    RiskClass.LOSES_ON_CRASH: "can lose",
    RiskClass.LOSES_AT_ONCE: "can lose",
    RiskClass.RUNS_CODE: "runs code",
    RiskClass.LOCKS_OUT: "can lock out or hang",
    RiskClass.UNKNOWN: "is unknown to this version of pgtop-tune",
}

_Applies = Callable[[str, "Parameter | None"], bool]


class Condition(Struct, frozen=True):
    """A condition on values of a setting.

    Attributes:
        values: Description of the values: "off", "below 1s".
        applies: Returns whether a value is one of them, given the value in the form of pg_settings, and the parameter
            where it is known.
    """

    values: str
    applies: _Applies


class ValueRisk(Struct, frozen=True, kw_only=True):
    """A risk of some values of one setting.

    Attributes:
        name: The setting.
        kind: Its class.
        condition: Condition on the values.
        reason: One clause: for a loss, the data that can be lost; for the others, the cause.
        tried_with_deadline: Whether a deadline makes a trial safe: the value is reverted by itself, the revert needs
            nothing that the value takes away, and no consistency is lost in between.
        announced: Whether the screen warns of it while it is in force; else only a change to it needs consent.
    """

    name: str
    kind: RiskClass
    condition: Condition
    reason: str
    tried_with_deadline: bool = False
    announced: bool = True

    @property
    def values(self) -> str:
        """Description of the values."""
        return self.condition.values

    @property
    def loses_data(self) -> bool:
        """Return whether it is one of the two classes of losses."""
        return self.kind in (RiskClass.LOSES_ON_CRASH, RiskClass.LOSES_AT_ONCE)

    def locked(self, *, ends: bool) -> bool:
        """Return whether the operator has to unlock the value by its name.

        Args:
            ends: Whether the value ends by itself: at a deadline unless confirmed, or with the sessions of a load.
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


def one_of(*values: str) -> Condition:
    """Return the condition that a value is one of some words, in any case and in every spelling of on and off."""
    return Condition(" or ".join(values), lambda value, parameter: _plain(value).lower() in values)


def below(limit: str, unit: str = "", *, above: float = float("-inf")) -> Condition:
    """Return the condition `above` < value < `limit`; `above` is in the unit of pg_settings, which is `unit`."""
    upper = parse(limit, unit, integer=False)

    def applies(value: str, parameter: Parameter | None) -> bool:
        number = _number(value, parameter, unit)
        return number is None or above < number < upper

    return Condition(f"below {limit}", applies)


def above(limit: str, unit: str = "") -> Condition:
    """Return the condition value > `limit`; `unit` is that of pg_settings."""
    lower = parse(limit, unit, integer=False)

    def applies(value: str, parameter: Parameter | None) -> bool:
        number = _number(value, parameter, unit)
        return number is None or number > lower

    return Condition(f"above {limit}", applies)


def when_new(condition: Condition) -> Condition:
    """Return a condition that excludes the value in force."""
    return Condition(
        condition.values,
        lambda value, parameter: condition.applies(value, parameter) and not _in_force(value, parameter),
    )


def matching(pattern: str, values: str) -> Condition:
    """Return the condition that a value contains a pattern, in any case."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return Condition(values, lambda value, parameter: compiled.search(value) is not None)


def _plain(value: str) -> str:
    """Return on or off for each spelling that the server accepts, for enums too (guc_tables.c); other values unchanged."""
    try:
        return parse_bool(value)
    except UsageProblem:
        return value


def _number(value: str, parameter: Parameter | None, unit: str = "") -> float | None:
    try:
        return parse(value, unit if parameter is None else parameter.unit, integer=False)
    except UsageProblem:
        return None


def _is_same(value: str, setting: str | None, parameter: Parameter) -> bool:
    if parameter.vartype in ("integer", "real"):
        return setting is not None and _number(value, parameter) == _number(setting, parameter)
    return _plain(value) == _plain(setting or "")


def _in_force(value: str, parameter: Parameter | None) -> bool:
    return parameter is not None and _is_same(value, parameter.setting, parameter)


def _not_default(value: str, parameter: Parameter | None) -> bool:
    return parameter is None or not _is_same(value, parameter.boot_val, parameter)


def _is_empty(value: str, parameter: Parameter | None) -> bool:
    return value in ("", "''", '""')


def _does_nothing(value: str, parameter: Parameter | None) -> bool:
    """Return whether a command succeeds without an effect: `true`, `/bin/true`, `:`, `exit 0`, `cd .`, `REM`."""
    pieces = value.split()
    return bool(pieces) and pieces[0].rpartition("/")[2] in ("true", ":", "exit", "cd", "echo", "REM", "rem", "#")


def _is_lower(value: str, parameter: Parameter | None) -> bool:
    if parameter is None:
        return True
    number, present = _number(value, parameter), _number(parameter.setting, parameter)
    return number is None or present is None or number < present


def _another_encoding(value: str, parameter: Parameter | None) -> bool:
    return re.sub("[^a-z0-9]", "", value.lower()) not in ("utf8", "unicode", "sqlascii")


ON: Final = one_of("on")
OFF: Final = one_of("off")
EMPTY: Final = Condition("empty", _is_empty)
NOT_EMPTY: Final = Condition("any non-empty value", lambda value, parameter: not _is_empty(value, parameter))
ANY: Final = Condition("any value", lambda value, parameter: True)
OTHER: Final = Condition("any value other than the default", _not_default)
NEW: Final = Condition(
    "any value other than the one in force", lambda value, parameter: not _in_force(value, parameter)
)
LOWER: Final = Condition("below the value in force", _is_lower)
NO_COMMAND: Final = Condition("a command that does nothing", _does_nothing)
OUTSIDE: Final = matching(r"^/|(^|/)\.\.(/|$)", "a path outside the data directory")
NO_LOG_NAME: Final = Condition(
    "a name that does not end in .log, .csv or .json",
    lambda value, parameter: "/" in value or not value.endswith((".log", ".csv", ".json")),
)
ANOTHER_ENCODING: Final = Condition("any encoding other than UTF8", _another_encoding)

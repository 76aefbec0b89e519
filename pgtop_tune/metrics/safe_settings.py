"""Settings of PostgreSQL 14 to 19, and of its contrib modules, that are safe at every value.

A value that is only slow, costs disk for a log, or is refused by the server itself, is safe here.
"""

from __future__ import annotations

from typing import Final

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
"""In lower case. The others are rows of `metrics/setting_risks`, or have their prefix in SAFE_EXTENSIONS."""

_PREFIXES: Final = """
    auto_explain hnsw ivfflat pg_buffercache pg_plan_advice pg_prewarm pg_qualstats pg_stash_advice pg_stat_kcache
    pg_stat_statements pg_trgm pg_wait_sampling
"""
SAFE_EXTENSIONS: Final = frozenset(_PREFIXES.split())
"""Prefixes of extensions: no setting of theirs names a program, a file or a library, or cuts what others do."""

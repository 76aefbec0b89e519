"""Every setting of every major has a class, and every spelling of a value that is not safe is recognised."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.setting_risks import RISKS, risk_of
from pgtop_tune.metrics.value_risks import SAFE, SAFE_EXTENSIONS, RiskClass
from tests.support.frames import parameter
from tests.support.servers import conninfo

LIBRARIES = "SELECT pg_ls_dir(setting) FROM pg_config WHERE name = 'PKGLIBDIR'"


def test_every_setting_of_every_major_and_of_its_modules_has_a_class(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        libraries = [str(name) for (name,) in connection.execute(LIBRARIES.encode()).fetchall()]
        # Conversions of encodings have no settings.
        for library in sorted(name for name in libraries if name.endswith(".so") and "utf8" not in name):
            with suppress(psycopg.Error):
                connection.execute(sql.SQL("LOAD {}").format(sql.Literal(library.removesuffix(".so"))))
        rows = connection.execute("SELECT lower(name) FROM pg_settings WHERE context <> 'internal'").fetchall()
    names = {str(name) for (name,) in rows}
    assert "auto_explain.log_analyze" in names
    assert {name for name in names if name.partition(".")[0] not in SAFE_EXTENSIONS} <= SAFE | RISKS.keys()


def test_what_is_in_force_already_is_no_new_risk() -> None:
    port = replace(parameter("port", "6415", "6415"), boot_val="5432")
    assert risk_of("port", " 6415 ", port) is None
    assert risk_of("port", "5432", port) is not None


def test_no_setting_has_two_classes_of_safety() -> None:
    assert not SAFE & RISKS.keys()
    assert all(name == name.lower() for name in SAFE | RISKS.keys())


@pytest.mark.parametrize("value", ["off", "OFF", " of ", "0", "false", "f", "no", "n"])
@pytest.mark.parametrize("name", ["fsync", "FSYNC", "full_page_writes", "synchronous_commit", "autovacuum"])
def test_off_is_fenced_in_every_spelling(name: str, value: str) -> None:
    risk = risk_of(name, value)
    assert risk is not None
    assert risk.loses_data


@pytest.mark.parametrize("value", ["off", "0", "false", "no"])
def test_the_server_means_the_same_by_these_spellings(server: Throwaway, value: str) -> None:
    with psycopg.connect(conninfo(server)) as connection:
        connection.execute("SELECT set_config('synchronous_commit', %s, false)", (value,))
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "on"), ("fsync", None), ("synchronous_commit", "remote_write"), ("wal_level", "logical"),
        ("max_wal_size", "0"), ("zero_damaged_pages", "off"), ("statement_timeout", "0"), ("statement_timeout", "5min"),
        ("max_connections", "200"), ("log_directory", "log"), ("log_filename", "postgresql-%a.log"),
        ("auto_explain.log_min_duration", "0"), ("client_encoding", "utf-8"), ("lock_timeout", "0"),
        ("lock_timeout", "30s"), ("wal_sender_timeout", "0"), ("tcp_keepalives_idle", "60"),
        ("default_transaction_isolation", "read committed"), ("log_min_messages", "warning"), ("log_file_mode", "0640"),
        ("superuser_reserved_connections", "3"), ("max_standby_streaming_delay", "30s"), ("work_mem", "1GB"),
    ],
)  # fmt: skip
def test_safe_values_and_resets_pass(name: str, value: str | None) -> None:
    assert risk_of(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("session_replication_role", "replica", RiskClass.LOSES_AT_ONCE),
        ("synchronous_standby_names", "nobody", RiskClass.LOCKS_OUT),
        ("client_encoding", "LATIN5", RiskClass.LOCKS_OUT),
        ("archive_command", "/bin/true", RiskClass.LOSES_AT_ONCE),
        ("archive_command", "exit 0", RiskClass.LOSES_AT_ONCE),
        ("archive_command", "", RiskClass.LOCKS_OUT),
        ("archive_command", "cp %p /archive/%f", RiskClass.RUNS_CODE),
        ("max_slot_wal_keep_size", "1MB", RiskClass.LOSES_AT_ONCE),
        ("ignore_invalid_pages", "on", RiskClass.LOSES_ON_CRASH),
        ("data_sync_retry", "1", RiskClass.LOSES_ON_CRASH),
        ("session_preload_libraries", "nope_lib", RiskClass.RUNS_CODE),
        ("dynamic_library_path", "/tmp", RiskClass.RUNS_CODE),
        ("Log_Directory", "/home/x", RiskClass.RUNS_CODE),
        ("statement_timeout", "5ms", RiskClass.LOCKS_OUT),
        ("max_connections", "3", RiskClass.LOCKS_OUT),
        ("allow_alter_system", "off", RiskClass.LOCKS_OUT),
        ("setting_of_postgresql_20", "1", RiskClass.UNKNOWN),
        ("plv8.of_another_version", "x", RiskClass.UNKNOWN),
    ],
)
def test_values_that_are_not_safe_have_their_class(name: str, value: str, kind: RiskClass) -> None:
    risk = risk_of(name, value)
    assert risk is not None
    assert risk.kind is kind
    assert risk.reason in risk.words


LOSES, RUNS, LOCKS = RiskClass.LOSES_AT_ONCE, RiskClass.RUNS_CODE, RiskClass.LOCKS_OUT


@pytest.mark.parametrize(
    ("names", "value", "kind"),
    [
        ("lock_timeout idle_in_transaction_session_timeout idle_session_timeout transaction_timeout", "1", LOCKS),
        ("wal_sender_timeout wal_receiver_timeout tcp_user_timeout statement_timeout", "1ms", LOCKS),
        ("tcp_keepalives_idle tcp_keepalives_interval tcp_keepalives_count authentication_timeout", "1", LOCKS),
        ("archive_library port unix_socket_directories unix_socket_group listen_addresses", "", LOCKS),
        ("superuser_reserved_connections reserved_connections", "90", LOCKS),
        ("max_standby_archive_delay max_standby_streaming_delay", "0", LOCKS),
        ("max_standby_archive_delay max_standby_streaming_delay", "-1", LOCKS),
        ("role session_authorization", "somebody", LOCKS),
        ("ssl default_transaction_read_only transaction_read_only allow_in_place_tablespaces", "on", LOCKS),
        ("jit_dump_bitcode ignore_system_indexes debug_print_plan log_hostname archive_mode", "yes", LOCKS),
        ("default_transaction_isolation transaction_isolation", "SERIALIZABLE", LOCKS),
        ("restrict_nonsystem_relation_kind wal_consistency_checking", "view", LOCKS),
        ("auth_delay.milliseconds deadlock_timeout autovacuum_naptime", "1d", LOCKS),
        ("autovacuum_freeze_max_age vacuum_failsafe_age join_collapse_limit scram_iterations", "2000000000", LOCKS),
        ("unix_socket_permissions", "0700", LOCKS),
        ("max_prepared_transactions max_worker_processes max_locks_per_transaction temp_file_limit", "0", LOCKS),
        ("log_min_messages", "debug5", LOCKS),
        ("log_min_messages", "warning, backend:PANIC", LOSES),
        ("log_destination", "", LOSES),
        ("log_file_mode", "0666", LOSES),
        ("datestyle intervalstyle", "postgres", LOSES),
        ("timezone lc_monetary", "C", LOSES),
        ("row_security", "off", LOCKS),
        ("event_triggers track_commit_timestamp summarize_wal check_function_bodies plpgsql.check_asserts", "0", LOSES),
        ("basic_archive.archive_directory", "/tmp", LOSES),
        ("plpgsql.variable_conflict", "use_column", LOSES),
        ("plperl.on_init plperl.on_plperl_init plperl.on_plperlu_init pltcl.start_proc pltclu.start_proc", "x", RUNS),
        ("basebackup_to_shell.command basebackup_to_shell.required_role search_path", "x", RUNS),
        ("log_directory", "log/../../elsewhere", RUNS),
        ("isn.weak sepgsql.permissive gss_accept_delegation", "on", LOSES),
    ],
)
def test_values_that_hang_cut_or_turn_others_out_are_not_safe(names: str, value: str, kind: RiskClass) -> None:
    for name in names.split():
        risk = risk_of(name, value)
        assert risk is not None, name
        assert risk.kind is kind, name

"""Every setting of every major has a class, and every spelling of a value that is not safe is recognised."""

from __future__ import annotations

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.setting_risks import RISKS, SAFE, RiskClass, risk_of
from tests.support.servers import conninfo


def test_every_setting_of_every_major_has_a_class(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers)) as connection:
        rows = connection.execute("SELECT lower(name) FROM pg_settings WHERE context <> 'internal'").fetchall()
    names = {str(name) for (name,) in rows if "." not in str(name)}
    assert names <= SAFE | RISKS.keys()


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
        ("auto_explain.log_min_duration", "0"), ("archive_library", ""), ("client_encoding", "utf-8"),
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
        ("plperl.on_init", "x", RiskClass.UNKNOWN),
    ],
)
def test_values_that_are_not_safe_have_their_class(name: str, value: str, kind: RiskClass) -> None:
    risk = risk_of(name, value)
    assert risk is not None
    assert risk.kind is kind
    assert risk.reason in risk.words
